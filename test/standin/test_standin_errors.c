/* test_standin_errors.c - what the stand-in GPU refuses, what breaks a context, and failures that a test
 * orders. Each test that breaks a context uses a device of its own. */
#include "standin/gpu.h"

#include <sys/wait.h>
#include <unistd.h>

enum { OUT_OF_BOUNDS = 1, FREED, ORDERED, HEALTHY };

__attribute__((constructor)) static void configure(void)
{
    setenv("STANDIN_DEVICES", "6", true);
    setenv("STANDIN_FAIL", "cuMemAlloc_v2:2:2", true);
}

/* The exit code of a child that runs the function. */
static int in_child(int (*run)(void))
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(run());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(test_nothing_works_before_the_driver_is_opened)
{
    int count, version;
    CUdeviceptr address;
    CUcontext context;
    assert_int_equal(cuDeviceGetCount(&count), CUDA_NOT_INITIALIZED);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_NOT_INITIALIZED);
    assert_int_equal(cuMemAlloc_v2(&address, 4), CUDA_NOT_INITIALIZED);
    MUST(cuDriverGetVersion(&version));
    assert_in_range(version, 11000, 99000);
}

/* Before this process opens the driver, its children may. */
static int count_visible(void)
{
    int count = 0;
    CUuuid first, second;
    setenv("CUDA_VISIBLE_DEVICES", "3,1,junk,2", true);
    if (cuInit(0) || cuDeviceGetCount(&count) || cuDeviceGetUuid_v2(&first, 0) ||
        cuDeviceGetUuid_v2(&second, 1))
        return 100;
    return strcmp(first.bytes, "standin-3") == 0 && strcmp(second.bytes, "standin-1") == 0 ? count : 101;
}

static int find_none(void)
{
    setenv("CUDA_VISIBLE_DEVICES", "", true);
    return cuInit(0);
}

TEST(test_visible_devices)
{
    assert_int_equal(in_child(count_visible), 2);
    assert_int_equal(in_child(find_none), CUDA_NO_DEVICE);
}

TEST(test_a_failure_of_the_environment)
{
    CUdeviceptr address;
    gpu_use(HEALTHY);
    MUST(cuMemAlloc_v2(&address, 4));
    assert_int_equal(cuMemAlloc_v2(&address, 4), CUDA_OUT_OF_MEMORY);
    MUST(cuMemAlloc_v2(&address, 4));
}

TEST(test_contexts)
{
    int count, active, device;
    unsigned flags;
    CUcontext context;
    CUdeviceptr address;
    MUST(cuInit(0));
    assert_int_equal(cuInit(1), CUDA_INVALID_VALUE);
    MUST(cuDeviceGetCount(&count));
    assert_int_equal(count, 6);
    assert_int_equal(cuDeviceGet(&device, 6), CUDA_INVALID_DEVICE);
    MUST(cuCtxSetCurrent(NULL));
    assert_int_equal(cuMemAlloc_v2(&address, 4), CUDA_INVALID_CONTEXT);
    assert_int_equal(cuCtxPopCurrent_v2(&context), CUDA_INVALID_CONTEXT);
    MUST(cuDevicePrimaryCtxGetState(5, &flags, &active));
    assert_false(active);
    MUST(cuDevicePrimaryCtxRetain(&context, 5));
    MUST(cuDevicePrimaryCtxGetState(5, &flags, &active));
    assert_true(active);
    gpu_use(HEALTHY);
    MUST(cuCtxPushCurrent_v2(context));
    MUST(cuCtxGetDevice(&device));
    assert_int_equal(device, 5);
    MUST(cuCtxPopCurrent_v2(&context));
    MUST(cuCtxGetDevice(&device));
    assert_int_equal(device, HEALTHY);
}

/* From now on all calls that use the device fail, and those of other devices don't. */
static void assert_broken(int device, CUresult code, CUstream stream, CUevent event)
{
    CUdeviceptr address;
    CUcontext context;
    assert_int_equal(cuMemAlloc_v2(&address, 4), code);
    assert_int_equal(cuStreamQuery(stream), code);
    assert_int_equal(cuEventQuery(event), code);
    assert_int_equal(cuCtxSynchronize(), code);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, device), code);
    MUST(cuEventDestroy_v2(event));
    gpu_use(HEALTHY);
    MUST(cuMemAlloc_v2(&address, 4));
    MUST(cuMemFree_v2(address));
}

TEST(test_a_copy_out_of_bounds)
{
    gpu_use(OUT_OF_BOUNDS);
    CUstream stream = gpu_stream(0);
    CUevent event = gpu_event();
    CUdeviceptr address = gpu_allocate(100);
    char *host = gpu_pinned(200);
    MUST(cuMemcpyAsync(address, gpu_address(host), 100, stream));
    MUST(cuEventRecord(event, stream));
    MUST(cuEventSynchronize(event));
    standin_hold(stream);
    MUST(cuMemcpyAsync(address, gpu_address(host), 101, stream)); /* is found later */
    host[150] = 7;
    MUST(cuMemcpyAsync(gpu_address(host + 150), gpu_address(host), 1, stream)); /* is never done */
    standin_release(stream);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ILLEGAL_ADDRESS);
    assert_int_equal(host[150], 7);
    assert_broken(OUT_OF_BOUNDS, CUDA_ILLEGAL_ADDRESS, stream, event);
}

TEST(test_a_use_of_freed_memory)
{
    gpu_use(FREED);
    CUstream stream = gpu_stream(0);
    CUevent event = gpu_event();
    CUdeviceptr address = gpu_allocate(100);
    MUST(cuMemFree_v2(address));
    MUST(cuMemsetD8Async(address, 0, 1, stream));
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ILLEGAL_ADDRESS);
    assert_broken(FREED, CUDA_ILLEGAL_ADDRESS, stream, event);
}

TEST(test_ordered_failures)
{
    gpu_use(ORDERED);
    CUstream stream = gpu_stream(0);
    CUevent event = gpu_event();
    standin_fail("cuEventQuery", 3, CUDA_UNKNOWN);
    MUST(cuEventQuery(event));
    MUST(cuEventQuery(event));
    MUST(cuStreamQuery(stream));
    assert_int_equal(cuEventQuery(event), CUDA_UNKNOWN);
    MUST(cuEventQuery(event));
    standin_fail("cuEventQuery", 1, CUDA_LAUNCH_FAILED);
    assert_int_equal(cuEventQuery(event), CUDA_LAUNCH_FAILED);
    assert_broken(ORDERED, CUDA_LAUNCH_FAILED, stream, event);
}

static int use_after_fork(void)
{
    int count;
    if (standin_calls(NULL) != 0)
        return 100;
    if (cuDeviceGetCount(&count) != CUDA_NOT_INITIALIZED || cuInit(0) != CUDA_NOT_INITIALIZED)
        return 101;
    return standin_calls("cuInit") + 10 * standin_calls(NULL);
}

TEST(test_a_child_of_a_fork_has_no_driver)
{
    gpu_use(HEALTHY);
    assert_int_equal(in_child(use_after_fork), 21);
    gpu_use(HEALTHY);
}

TEST(test_counts_calls)
{
    int count, before = standin_calls("cuDeviceGetCount"), all = standin_calls(NULL);
    MUST(cuDeviceGetCount(&count));
    assert_int_equal(standin_calls("cuDeviceGetCount"), before + 1);
    assert_int_equal(standin_calls(NULL), all + 1);
}

TEST(test_names_of_results)
{
    const char *name, *text;
    MUST(cuGetErrorName(CUDA_ILLEGAL_ADDRESS, &name));
    MUST(cuGetErrorString(CUDA_ILLEGAL_ADDRESS, &text));
    assert_string_equal(name, "CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_string_equal(text, "an illegal memory access was encountered");
    assert_int_equal(cuGetErrorName(12345, &name), CUDA_INVALID_VALUE);
    assert_null(name);
}
