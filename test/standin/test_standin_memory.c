/* test_standin_memory.c - memory of the stand-in GPU: no host can touch it, it is garbage at first, and it
 * has bounds.
 */
#include "standin/gpu.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEGABYTES = 4 };

__attribute__((constructor)) static void configure(void)
{
    setenv("STANDIN_DEVICES", "2", true);
    setenv("STANDIN_MEMORY_MB", "4", true);
    setenv("STANDIN_DELAY_US", "2000", true);
}

static int use_first(void **state)
{
    (void)state;
    gpu_use(0);
    return 0;
}

const struct test_hooks test_hooks = {.before_each = use_first};

static bool dies_of_reading(const volatile char *address)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* sanitizers have a handler */
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        _exit(*address);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

TEST(test_no_host_touches_it)
{
    static char own = 1;
    CUdeviceptr address = gpu_allocate(4096);
    assert_true(dies_of_reading((const char *)(uintptr_t)address));
    assert_true(dies_of_reading((const char *)(uintptr_t)(address + 4095)));
    assert_false(dies_of_reading(&own));
    MUST(cuMemFree_v2(address));
}

TEST(test_copies_there_and_back)
{
    enum { BYTES = 100001 };
    char *bytes = gpu_pinned(BYTES), *back = gpu_pinned(BYTES);
    CUdeviceptr address = gpu_allocate(BYTES), other = gpu_allocate(BYTES);
    CUstream stream = gpu_stream(CUDA_STREAM_NON_BLOCKING);
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (char)(i * 7 + i / 251);
    gpu_put(address, bytes, BYTES, stream);
    MUST(cuMemcpyAsync(other, address, BYTES, stream));
    gpu_get(back, other, BYTES, stream);
    assert_memory_equal(bytes, back, BYTES);
    MUST(cuMemcpyAsync(other + 10, other, BYTES - 10, stream)); /* the ranges overlap */
    gpu_get(back, other + 10, BYTES - 10, stream);
    assert_memory_equal(bytes, back, BYTES - 10);
    MUST(cuMemFree_v2(address));
    MUST(cuMemFree_v2(other));
    MUST(cuMemFreeHost(bytes));
    MUST(cuMemFreeHost(back));
}

TEST(test_fills)
{
    uint32_t words[4];
    CUdeviceptr address = gpu_allocate(sizeof words);
    MUST(cuMemsetD32Async(address, 0x01020304, 4, NULL));
    MUST(cuMemsetD16Async(address + 4, 0x5060, 2, NULL));
    MUST(cuMemsetD8Async(address + 9, 0x77, 2, NULL));
    gpu_get(words, address, sizeof words, NULL);
    assert_int_equal(words[0], 0x01020304);
    assert_int_equal(words[1], 0x50605060);
    assert_int_equal(words[2], 0x01777704);
    assert_int_equal(words[3], 0x01020304);
    assert_int_equal(cuMemsetD32Async(address + 2, 0, 1, NULL), CUDA_INVALID_VALUE);
    MUST(cuMemFree_v2(address));
}

TEST(test_fresh_memory_is_garbage)
{
    uint32_t *host = gpu_pinned(64);
    CUdeviceptr address = gpu_allocate(64);
    assert_int_equal(gpu_word(address), 0x5a5a5a5a);
    assert_int_equal(host[3], 0xa5a5a5a5);
    MUST(cuMemFree_v2(address));
    MUST(cuMemFreeHost(host));
}

TEST(test_addresses_are_not_used_again)
{
    CUdeviceptr first = gpu_allocate(64), second;
    MUST(cuMemFree_v2(first));
    second = gpu_allocate(64);
    assert_true(second != first);
    assert_int_equal(cuMemFree_v2(first), CUDA_INVALID_VALUE);
    assert_int_equal(cuMemFree_v2(second + 8), CUDA_INVALID_VALUE);
    MUST(cuMemFree_v2(second));
    MUST(cuMemFree_v2(0));
}

TEST(test_memory_ends)
{
    size_t left, total;
    CUdeviceptr address, refused;
    MUST(cuMemGetInfo_v2(&left, &total));
    assert_int_equal(left, total);
    assert_int_equal(total, MEGABYTES << 20);
    address = gpu_allocate(total / 2 + 1);
    MUST(cuMemGetInfo_v2(&left, &total));
    assert_in_range(left, total / 2 - 8192, total / 2 - 1);
    assert_int_equal(cuMemAlloc_v2(&refused, total / 2), CUDA_OUT_OF_MEMORY);
    gpu_use(1); /* another device has its own */
    MUST(cuMemAlloc_v2(&refused, total / 2));
    MUST(cuMemFree_v2(refused));
    gpu_use(0);
    MUST(cuMemFree_v2(address));
    MUST(cuMemGetInfo_v2(&left, &total));
    assert_int_equal(left, total);
    assert_int_equal(cuMemAlloc_v2(&refused, 0), CUDA_INVALID_VALUE);
    assert_int_equal(cuMemAlloc_v2(&refused, SIZE_MAX), CUDA_OUT_OF_MEMORY);
}

TEST(test_attributes_of_addresses)
{
    unsigned type;
    int device;
    CUcontext context, current;
    char stack[8], *host = gpu_pinned(100);
    gpu_use(1);
    CUdeviceptr base, address = gpu_allocate(1000);
    size_t bytes;
    MUST(cuPointerGetAttribute(&type, CUDA_POINTER_MEMORY_TYPE, address + 999));
    assert_int_equal(type, CUDA_MEMORY_DEVICE);
    MUST(cuPointerGetAttribute(&device, CUDA_POINTER_DEVICE_ORDINAL, address + 999));
    assert_int_equal(device, 1);
    MUST(cuPointerGetAttribute(&context, CUDA_POINTER_CONTEXT, address));
    MUST(cuCtxGetCurrent(&current));
    assert_ptr_equal(context, current);
    assert_int_equal(cuPointerGetAttribute(&type, CUDA_POINTER_MEMORY_TYPE, address + 1000),
                     CUDA_INVALID_VALUE);
    MUST(cuMemGetAddressRange_v2(&base, &bytes, address + 500));
    assert_int_equal(base, address);
    assert_int_equal(bytes, 1000);
    MUST(cuPointerGetAttribute(&type, CUDA_POINTER_MEMORY_TYPE, gpu_address(host + 99)));
    assert_int_equal(type, CUDA_MEMORY_HOST);
    assert_int_equal(cuPointerGetAttribute(&type, CUDA_POINTER_MEMORY_TYPE, gpu_address(stack)),
                     CUDA_INVALID_VALUE);
    MUST(cuMemFree_v2(address));
    assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, address), CUDA_NOT_FOUND);
    MUST(cuMemFreeHost(host));
}

TEST(test_registers_memory_of_the_host)
{
    unsigned type;
    static char memory[8192];
    MUST(cuMemHostRegister_v2(memory, sizeof memory, 0));
    MUST(cuPointerGetAttribute(&type, CUDA_POINTER_MEMORY_TYPE, gpu_address(memory + 5000)));
    assert_int_equal(type, CUDA_MEMORY_HOST);
    assert_int_equal(cuMemHostRegister_v2(memory + 4096, 10, 0), CUDA_ALREADY_REGISTERED);
    assert_int_equal(cuMemFreeHost(memory), CUDA_INVALID_VALUE);
    MUST(cuMemHostUnregister(memory));
    assert_int_equal(cuMemHostUnregister(memory), CUDA_NOT_REGISTERED);
}

TEST(test_freeing_waits_for_the_device)
{
    uint32_t *host = gpu_pinned(4);
    CUstream stream = gpu_stream(CUDA_STREAM_NON_BLOCKING);
    for (int i = 0; i < 20; i++) {
        CUdeviceptr address = gpu_allocate(4);
        *host = (uint32_t)i;
        gpu_put(address, host, 4, stream);
        MUST(cuMemcpyAsync(gpu_address(host), address, 4, stream));
        MUST(cuMemFree_v2(address));
        MUST(cuStreamQuery(stream));
        assert_int_equal(*host, i);
    }
    MUST(cuMemFreeHost(host));
}

/* Page-locked memory is read when the copy runs, other memory before the call returns. */
TEST(test_when_memory_of_the_host_is_read)
{
    uint32_t *pinned = gpu_pinned(4), pageable = 1;
    CUdeviceptr address = gpu_allocate(8);
    CUstream stream = gpu_stream(CUDA_STREAM_NON_BLOCKING);
    *pinned = 1;
    standin_hold(stream);
    gpu_put(address, pinned, 4, stream);
    gpu_put(address + 4, &pageable, 4, stream);
    *pinned = pageable = 2;
    standin_release(stream);
    MUST(cuStreamSynchronize(stream));
    assert_int_equal(gpu_word(address), 2);
    assert_int_equal(gpu_word(address + 4), 1);
    pageable = 0;
    MUST(cuMemcpyAsync(gpu_address(&pageable), address, 4, stream)); /* it has waited */
    assert_int_equal(pageable, 2);
    MUST(cuMemFree_v2(address));
    MUST(cuMemFreeHost(pinned));
}
