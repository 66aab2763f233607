/* test_standin_ipc.c - two processes share memory of the stand-in GPU by a handle. */
#include "standin/gpu.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 10000, AT = 5000 };

/* What one process sends to the other one. */
struct message {
    CUipcMemHandle handle;
    uint64_t offset; /* of the pointer whose handle it is, in its allocation */
};

/* Returns the number of the first step that went wrong, 0 if none did. */
static int open_and_write(int fd)
{
    struct message message;
    CUcontext context, current;
    CUdeviceptr base, again, refused;
    CUstream stream;
    uint32_t words[2] = {0, 77};
    if (recv(fd, &message, sizeof message, MSG_WAITALL) != sizeof message)
        return 1;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 1) || cuCtxSetCurrent(context) ||
        cuStreamCreateWithPriority(&stream, 0, 0))
        return 2;
    if (cuIpcOpenMemHandle_v2(&base, message.handle, CUDA_IPC_LAZY_PEER_ACCESS) ||
        cuIpcOpenMemHandle_v2(&again, message.handle, CUDA_IPC_LAZY_PEER_ACCESS) || again != base)
        return 3;
    if (cuMemcpyAsync(gpu_address(words), base + message.offset, 4, stream) || cuStreamSynchronize(stream) ||
        words[0] != 55)
        return 4;
    if (cuMemcpyAsync(base + BYTES - 4, gpu_address(words + 1), 4, stream) || cuStreamSynchronize(stream))
        return 5;
    CUipcMemHandle of_opened;
    if (cuIpcGetMemHandle(&of_opened, base) != CUDA_INVALID_VALUE || cuMemFree_v2(base) != CUDA_INVALID_VALUE)
        return 6;
    if (cuIpcCloseMemHandle(base) || cuMemsetD8Async(base, 1, 1, stream) || cuStreamSynchronize(stream))
        return 7; /* it is still open once */
    if (cuIpcCloseMemHandle(base) || cuIpcCloseMemHandle(base) != CUDA_INVALID_VALUE)
        return 8;
    if (cuCtxGetCurrent(&current) || current != context)
        return 9;
    message.handle.reserved[0] ^= 1;
    if (cuIpcOpenMemHandle_v2(&refused, message.handle, CUDA_IPC_LAZY_PEER_ACCESS) != CUDA_INVALID_VALUE)
        return 10;
    if (cuMemsetD8Async(base, 1, 1, stream) || cuStreamSynchronize(stream) != CUDA_ILLEGAL_ADDRESS)
        return 11;
    return 0;
}

/* The child is forked before CUDA is used, as the real one demands. */
TEST(test_two_processes_share_memory)
{
    int fds[2], status;
    uint32_t word = 55;
    CUdeviceptr base, refused;
    size_t bytes;
    struct message message;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(open_and_write(fds[1]));
    gpu_use(0);
    CUdeviceptr address = gpu_allocate(BYTES) + AT;
    gpu_put(address, &word, sizeof word, NULL);
    MUST(cuCtxSynchronize());
    MUST(cuIpcGetMemHandle(&message.handle, address)); /* that of the whole allocation */
    MUST(cuMemGetAddressRange_v2(&base, &bytes, address));
    message.offset = address - base;
    assert_int_equal(message.offset, AT);
    assert_int_equal(cuIpcOpenMemHandle_v2(&refused, message.handle, CUDA_IPC_LAZY_PEER_ACCESS),
                     CUDA_INVALID_CONTEXT);
    assert_int_equal(write(fds[0], &message, sizeof message), sizeof message);
    close(fds[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(gpu_word(base + BYTES - 4), 77);
    assert_int_equal(gpu_word(base) & 0xff, 1);
    close(fds[0]);
    MUST(cuMemFree_v2(base));
}
