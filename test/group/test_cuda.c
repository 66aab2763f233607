/* test_cuda.c - GPUs of NVIDIA, on the stand-in for the driver: which contexts are opened, what is refused,
 * and what happens when the driver fails. The operations themselves are in the tests that device.h puts on
 * CUDA. */
#include "device.h"
#include "device/cuda.h"
#include "device/memory.h"
#include "device/pinned.h"
#include "group.h"
#include "standin/standin.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ELEMENTS = 5000, BROKEN_GPU = 7 };

static hvd_tensor make_tensor(int32_t device_id, const int64_t *shape)
{
    hvd_tensor tensor = tensor_of(NULL, HVD_FLOAT32, shape, 1);
    device_register();
    tensor.data = device_allocate(device_id, (size_t)*shape * sizeof(float));
    tensor.device_type = HVD_CUDA;
    tensor.device_id = device_id;
    return tensor;
}

/* Writes `value` to all elements, on that stream. */
static void write_value(const hvd_tensor *tensor, void *stream, float value)
{
    float values[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++)
        values[i] = value;
    device_write_on(stream, tensor->data, values, (size_t)tensor->shape[0] * sizeof *values);
}

static void check_value(const hvd_tensor *tensor, float expected)
{
    float values[ELEMENTS];
    device_read(values, tensor->data, (size_t)tensor->shape[0] * sizeof *values);
    for (int64_t i = 0; i < tensor->shape[0]; i++)
        CHECK(values[i] == expected, "element %d is %g, not %g", (int)i, (double)values[i], (double)expected);
}

/* ---- contexts: the first test, as they stay open ------------------------------------------------------ */

/* Of the GPUs, as bits. */
static unsigned open_contexts(void)
{
    unsigned open = 0, flags;
    for (int i = 0; i < DEVICES; i++) {
        int active;
        CHECK(!cuDevicePrimaryCtxGetState(i, &flags, &active), "no state");
        open |= (unsigned)active << i;
    }
    return open;
}

/* A sum on one GPU, of this rank's value. */
static void check_sum(struct member *member, const char *name, int32_t device_id, float value, float expected)
{
    int64_t shape[] = {ELEMENTS};
    hvd_tensor tensor = make_tensor(device_id, shape);
    hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
    request.stream = device_stream(device_id);
    write_value(&tensor, request.stream, value);
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    check_value(&tensor, expected);
    device_release(tensor.data);
}

/* Ranks 0 and 2 have tensors on the GPUs 5 and 6. Rank 1 joins before its first tensor, so it uses the GPU
 * with the number of its local rank; rank 2 joins later, and keeps its own. No rank opens another context. */
static void contexts(struct member *member)
{
    hvd_request barrier = {.struct_size = sizeof barrier, .operation = HVD_BARRIER};
    hvd_request join = {.struct_size = sizeof join, .operation = HVD_JOIN};
    hvd_handle *joined;
    device_register();
    CHECK(open_contexts() == 0, "a context was opened without a tensor");
    CHECK_OK(hvd_run(member->context, &barrier, NULL, &check_status));
    if (member->rank != 1)
        check_sum(member, "first", member->rank ? 6 : 5, (float)member->rank + 1, 4);
    if (member->rank == 0)
        check_sum(member, "second", 5, 7, 7);
    CHECK_OK(hvd_submit(member->context, &join, &joined, &check_status));
    finish(joined);
    CHECK(open_contexts() == (1U << 1 | 1U << 5 | 1U << 6), "the GPUs with a context are %x",
          open_contexts());
}

GROUP_TEST(test_contexts, contexts, 3, 3, .transport = "shm")

/* ---- several GPUs of one process ---------------------------------------------------------------------- */

/* The tensors of a group are on two GPUs, each written by a stream of its own that is held back; other
 * requests, which the engine may put into one batch, are on either. */
static void two_gpus(struct member *member)
{
    int64_t shape[] = {ELEMENTS};
    int32_t ids[] = {member->rank, member->rank + 3};
    hvd_tensor tensors[] = {make_tensor(ids[0], shape), make_tensor(ids[1], shape),
                            make_tensor(ids[1], shape), make_tensor(ids[0], shape)};
    void *streams[] = {device_stream(ids[0]), device_stream(ids[1])};
    hvd_handle *handles[3];
    for (int turn = 0; turn < 10; turn++) {
        for (int i = 0; i < 2; i++)
            device_hold(streams[i]);
        for (int i = 0; i < 4; i++)
            write_value(&tensors[i], streams[i == 1 || i == 2], (float)(member->rank + i + turn));
        hvd_request request = request_of(HVD_ALLREDUCE, "group", tensors);
        request.count = 2;
        request.streams = streams;
        CHECK_OK(hvd_submit(member->context, &request, &handles[0], &check_status));
        for (int i = 1; i < 3; i++) {
            request = request_of(HVD_ALLREDUCE, i == 1 ? "one" : "other", &tensors[i + 1]);
            request.stream = streams[i == 1];
            CHECK_OK(hvd_submit(member->context, &request, &handles[i], &check_status));
        }
        device_go_on(streams[turn % 2]);
        device_go_on(streams[(turn + 1) % 2]);
        for (int i = 0; i < 3; i++)
            finish(handles[i]);
        for (int i = 0; i < 4; i++)
            check_value(&tensors[i],
                        (float)(member->size * (member->size - 1) / 2 + member->size * (i + turn)));
    }
    for (int i = 0; i < 4; i++)
        device_release(tensors[i].data);
}

/* The engine's stream of the GPU whose copies are started first is held back: the copies of a batch are done
 * when those of all its GPUs are. */
static void a_slow_gpu(struct member *member)
{
    int64_t shape[] = {ELEMENTS};
    int32_t ranks[] = {0, 1, 2}, ids[] = {member->rank, member->rank + 3}, set;
    void *streams[] = {NULL, NULL};
    struct cuda_use use;
    hvd_handle *handle;
    float value = 1;
    hvd_tensor scalar = tensor_of(&value, HVD_FLOAT32, NULL, 0);
    CHECK_OK(hvd_process_set_add(member->context, ranks, member->size, &set, &check_status));
    for (int turn = 0; turn < 4; turn++) {
        hvd_tensor tensors[] = {make_tensor(ids[turn % 2], shape), make_tensor(ids[1 - turn % 2], shape)};
        hvd_request request = request_of(HVD_ALLREDUCE, "slow", tensors);
        hvd_request meanwhile = request_of(HVD_ALLREDUCE, "meanwhile", &scalar);
        meanwhile.process_set = set;
        request.count = 2;
        request.streams = streams;
        for (int i = 0; i < 2; i++) {
            write_value(&tensors[i], device_stream(tensors[i].device_id), (float)(i + 1));
            device_finish(device_stream(tensors[i].device_id));
        }
        CHECK_OK(cuda_enter(&use, tensors[0].device_id, &check_status));
        standin_hold(use.stream);
        CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
        for (int i = 0; i < 20; i++)
            CHECK_OK(hvd_run(member->context, &meanwhile, NULL, &check_status));
        CHECK(hvd_test(handle, NULL) == HVD_IN_PROGRESS, "done before a copy was");
        standin_release(use.stream);
        cuda_leave(&use);
        finish(handle);
        for (int i = 0; i < 2; i++) {
            check_value(&tensors[i], (float)(member->size * (i + 1)));
            device_release(tensors[i].data);
        }
    }
}

GROUP_TEST(test_two_gpus, two_gpus, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_a_slow_gpu, a_slow_gpu, 1, 3, .transport = "shm")

/* ---- what is refused ---------------------------------------------------------------------------------- */

static void check_refused(struct member *member, const hvd_tensor *tensor, void *stream, hvd_code code,
                          const char *words)
{
    hvd_status status;
    hvd_request request = request_of(HVD_ALLREDUCE, "refused", tensor);
    request.stream = stream;
    hvd_code got = hvd_run(member->context, &request, NULL, &status);
    CHECK(got == code && strstr(status.text, words), "%s: %s", hvd_code_name(got), status.text);
}

/* The capture is not disturbed, and the same operation works afterwards. */
static void a_captured_stream(struct member *member)
{
    static const char words[] = "allreduce: the tensor's stream is being captured into a CUDA graph";
    int64_t shape[] = {ELEMENTS};
    hvd_tensor tensor = make_tensor(member->rank, shape);
    CUstream stream = device_stream(member->rank), blocking;
    CUstreamCaptureStatus capturing = CUDA_NOT_CAPTURING;
    struct cuda_use use;
    CHECK_OK(cuda_enter(&use, member->rank, &check_status));
    CHECK(!cuStreamCreateWithPriority(&blocking, 0, 0), "no stream");
    standin_capture(stream, true);
    check_refused(member, &tensor, stream, HVD_UNSUPPORTED, words);
    CHECK(!cuStreamIsCapturing(stream, &capturing) && capturing, "the capture has ended");
    standin_capture(stream, false);
    standin_capture(blocking, true); /* so the default stream can't be used */
    check_refused(member, &tensor, NULL, HVD_UNSUPPORTED, words);
    standin_capture(blocking, false);
    cuda_leave(&use);
    device_release(tensor.data);
    check_sum(member, "refused", member->rank, 1, (float)member->size);
}

/* While a thread captures any stream, the driver refuses calls that may wait or allocate. The engine's are
 * none of the capture, and are allowed. */
static void beside_a_capture(struct member *member)
{
    CUstream captured = device_side_stream(member->rank);
    CUstreamCaptureStatus capturing = CUDA_NOT_CAPTURING;
    struct cuda_use use;
    standin_capture(captured, true);
    for (int i = 0; i < 5; i++)
        check_sum(member, "beside", member->rank, 1, (float)member->size);
    CHECK_OK(cuda_enter(&use, member->rank, &check_status));
    CHECK(!cuStreamIsCapturing(captured, &capturing) && capturing, "the capture has ended");
    cuda_leave(&use);
    standin_capture(captured, false);
}

static void unknown_gpus(struct member *member)
{
    int64_t shape[] = {ELEMENTS};
    hvd_tensor tensor = make_tensor(member->rank, shape);
    tensor.device_id = DEVICES;
    check_refused(member, &tensor, NULL, HVD_INVALID_ARGUMENT,
                  "allreduce: there is no GPU 8: this process sees 8, with numbers from 0");
    tensor.device_id = -1;
    check_refused(member, &tensor, NULL, HVD_INVALID_ARGUMENT, "there is no GPU -1");
    device_release(tensor.data);
    check_sum(member, "refused", member->rank, 1, (float)member->size);
}

GROUP_TEST(test_a_captured_stream, a_captured_stream, 1, 3, .transport = "shm")
GROUP_TEST(test_beside_a_capture, beside_a_capture, 1, 3, .transport = "shm")
GROUP_TEST(test_unknown_gpus, unknown_gpus, 1, 2, .transport = "shm")

/* ---- a child of fork() -------------------------------------------------------------------------------- */

/* Returns whether a child's use of what its parent has made reaches the driver. */
static bool child_calls_the_driver(struct member *member, hvd_handle *done, const hvd_request *request,
                                   void *result)
{
    hvd_status status;
    bool refused = hvd_run(member->context, request, NULL, &status) == HVD_FORKED;
    hvd_release(done);
    hvd_free(result);
    refused = refused && hvd_find_cuda(&status) == HVD_UNSUPPORTED && strstr(status.text, "child of fork()");
    return !refused || standin_calls(NULL) > 0;
}

static void a_child(struct member *member)
{
    int64_t shape[] = {ELEMENTS};
    hvd_tensor tensor = make_tensor(member->rank, shape), result;
    hvd_request request = request_of(HVD_ALLGATHER, "gather", &tensor);
    hvd_handle *handle;
    int ended;
    CHECK_OK(hvd_run(member->context, &request, &result, &check_status));
    CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
    CHECK_OK(hvd_wait(handle, 60, &check_status));
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0)
        _exit(child_calls_the_driver(member, handle, &request, result.data));
    CHECK(waitpid(child, &ended, 0) == child && ended == 0, "the child has called the driver, or crashed");
    hvd_release(handle);
    hvd_free(result.data);
    device_release(tensor.data);
    check_sum(member, "after", member->rank, 1, (float)member->size);
}

GROUP_TEST(test_a_child, a_child, 1, 2, .transport = "shm")

/* ---- what is kept ------------------------------------------------------------------------------------- */

/* Page-locked blocks and events are used again: 100 steps make fewer of them than steps. */
static void steps(struct member *member)
{
    const char *const made[] = {"cuMemHostRegister_v2", "cuEventCreate"};
    int before[2];
    for (int step = 0; step < 110; step++) {
        if (step == 10)
            for (int i = 0; i < 2; i++)
                before[i] = standin_calls(made[i]);
        check_sum(member, "step", member->rank, 1, (float)member->size);
    }
    for (int i = 0; i < 2; i++)
        CHECK(standin_calls(made[i]) - before[i] < 10, "%s is called in each step", made[i]);
}

GROUP_TEST(test_steps, steps, 1, 2, .transport = "shm")

/* All tensors of a batch travel by one copy, which one kernel prepares, and return by one of each. The
 * caller's stream writes them after the request. */
static void many_small_tensors(struct member *member)
{
    static const char *const calls[] = {"cuLaunchKernel", "cuMemcpyAsync"};
    enum { COUNT = 161 };
    int64_t shapes[COUNT][1];
    hvd_tensor tensors[COUNT];
    hvd_handle *handle;
    hvd_request barrier = {.struct_size = sizeof barrier, .operation = HVD_BARRIER};
    int before[2], after[2];
    CUstream stream = device_stream(member->rank);
    for (int turn = 0; turn < 2; turn++) {
        CHECK_OK(hvd_run(member->context, &barrier, NULL, &check_status));
        device_hold(stream);
        for (int i = 0; i < COUNT; i++) {
            shapes[i][0] = 1 + i % 40;
            if (turn == 0)
                tensors[i] = make_tensor(member->rank, shapes[i]);
            write_value(&tensors[i], stream, (float)(member->rank + i + turn));
        }
        CHECK_OK(hvd_run(member->context, &barrier, NULL, &check_status));
        for (int i = 0; i < 2; i++)
            before[i] = standin_calls(calls[i]);
        CHECK_OK(hvd_run(member->context, &barrier, NULL, &check_status));
        hvd_request request = request_of(HVD_ALLREDUCE, "many", tensors);
        request.count = COUNT;
        request.stream = stream;
        CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
        device_go_on(stream);
        finish(handle);
        CHECK_OK(hvd_run(member->context, &barrier, NULL, &check_status));
        for (int i = 0; i < 2; i++)
            after[i] = standin_calls(calls[i]);
        CHECK_OK(hvd_run(member->context, &barrier, NULL, &check_status));
        for (int i = 0; i < 2; i++)
            CHECK(after[i] - before[i] == 2 * member->size, "%d calls of %s", after[i] - before[i], calls[i]);
        for (int i = 0; i < COUNT; i++)
            check_value(&tensors[i],
                        (float)(member->size * (member->size - 1) / 2 + member->size * (i + turn)));
    }
    for (int i = 0; i < COUNT; i++)
        device_release(tensors[i].data);
}

GROUP_TEST(test_many_small_tensors, many_small_tensors, 1, 3, .transport = "shm")

static void keep_memory(struct member *member)
{
    check_sum(member, "kept", member->rank, 1, (float)member->size);
    CHECK(pinned_kept(), "nothing is kept");
}

TEST(test_shutdown_gives_back_what_is_kept)
{
    group_run(&(struct group_options){.transport = "shm"}, 2, keep_memory, NULL);
    assert_int_equal(pinned_kept(), 0);
}

TEST(test_page_locked_memory_is_bounded)
{
    const size_t bytes = PINNED_KEPT / 2 - 4096;
    void *blocks[3];
    device_register();
    int freed = standin_calls("cuMemHostUnregister");
    for (int i = 0; i < 3; i++)
        assert_non_null(blocks[i] = pinned_allocate(0, bytes));
    for (int i = 0; i < 3; i++)
        pinned_release(blocks[i]);
    assert_true(pinned_kept() <= PINNED_KEPT);
    assert_true(standin_calls("cuMemHostUnregister") > freed);
    /* The last one is used first, and a much smaller request gets a block of its own. */
    void *small = pinned_allocate(0, 100), *large = pinned_allocate(0, bytes);
    assert_ptr_equal(large, blocks[2]);
    assert_int_equal((uintptr_t)small % 64, 0);
    pinned_release(small);
    pinned_release(large);
}

/* The memory of a copy may be used again once its event is released, done or not. */
TEST(test_a_released_event_is_done)
{
    int64_t shape[] = {ELEMENTS};
    hvd_tensor tensor = make_tensor(0, shape);
    size_t bytes = ELEMENTS * sizeof(float);
    float *block = pinned_allocate(0, bytes);
    standin_delay(20000);
    for (int i = 0; i < 10; i++) {
        struct memory_event *copied;
        write_value(&tensor, device_stream(0), (float)i);
        device_finish(device_stream(0));
        ASSERT_OK(
            memory_cuda.copy(&(struct memory_copy){block, tensor.data, bytes}, 1, &copied, &check_status));
        memory_cuda.event_release(copied);
        assert_true(block[0] == (float)i && block[ELEMENTS - 1] == (float)i);
    }
    standin_delay(50);
    pinned_release(block);
    device_release(tensor.data);
}

/* If the driver can't lock pages, copies from and to ordinary ones are right as well. */
static void without_locks(struct member *member)
{
    int64_t shape[] = {ELEMENTS};
    hvd_tensor tensors[300]; /* more memory than the blocks that are kept have */
    int refused = standin_calls("cuMemHostRegister_v2");
    for (int i = 0; i < 300; i++) {
        tensors[i] = make_tensor(0, shape);
        write_value(&tensors[i], device_stream(0), (float)i);
    }
    standin_fail("cuMemHostRegister_v2", 1, CUDA_OUT_OF_MEMORY);
    hvd_request request = request_of(HVD_ALLREDUCE, "group", tensors);
    request.count = 300;
    request.stream = device_stream(0);
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    CHECK(standin_calls("cuMemHostRegister_v2") > refused, "no block was needed");
    for (int i = 0; i < 300; i++) {
        check_value(&tensors[i], (float)i);
        device_release(tensors[i].data);
    }
}

GROUP_TEST(test_without_locks, without_locks, 1, 1, .transport = "shm")

/* ---- a driver that fails ------------------------------------------------------------------------------ */

struct failure {
    const char *symbol;
    CUresult code;
    hvd_operation operation;
    int32_t device_id; /* of all ranks */
    const char *words;
};

/* The next call of a function fails, on any rank: all of them get the error. */
static void a_failure(struct member *member)
{
    const struct failure *failure = member->argument;
    hvd_status status;
    int64_t shape[] = {1 << 20}; /* other tests need smaller blocks */
    hvd_tensor tensor = make_tensor(failure->device_id, shape), result;
    hvd_request barrier = {.struct_size = sizeof barrier, .operation = HVD_BARRIER};
    hvd_request request = request_of(failure->operation, "fails", &tensor);
    CHECK_OK(hvd_run(member->context, &barrier, NULL, &check_status));
    if (member->rank == 0)
        standin_fail(failure->symbol, 1, failure->code);
    CHECK_OK(hvd_run(member->context, &barrier, NULL, &check_status));
    hvd_code code = hvd_run(member->context, &request, &result, &status);
    CHECK(code && strstr(status.text, failure->words), "%s: %s", hvd_code_name(code), status.text);
    device_release(tensor.data);
}

TEST(test_failures_of_the_driver)
{
    struct failure failures[] = {
        {"cuMemcpyAsync", CUDA_UNKNOWN, HVD_ALLREDUCE, 0,
         "copying a tensor of the GPU failed: unknown error (CUDA_ERROR_UNKNOWN, 999)"},
        {"cuEventQuery", CUDA_UNKNOWN, HVD_ALLREDUCE, 0, "work on the GPU failed: unknown error"},
        {"cuMemAlloc_v2", CUDA_OUT_OF_MEMORY, HVD_ALLGATHER, 0, "out of memory for"},
        {"cuMemcpyAsync", CUDA_ILLEGAL_ADDRESS, HVD_ALLREDUCE, BROKEN_GPU,
         "(CUDA_ERROR_ILLEGAL_ADDRESS, 700); a kernel that was launched before is at fault"},
    };
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
        group_run(&(struct group_options){.transport = "shm"}, 2, a_failure, &failures[i]);
}
