/* test_standin_streams.c - the order of work on the stand-in GPU: nothing is ordered but what CUDA orders.
 * Gates make each case certain: work that is not ordered behind a held stream overtakes it. */
#include "standin/gpu.h"

#include "base/clock.h"

#include <stdatomic.h>
#include <unistd.h>

static CUdeviceptr word;
static CUstream a, b; /* not ordered with the default stream */

static int begin(void **state)
{
    (void)state;
    gpu_use(0);
    word = gpu_allocate(4);
    a = gpu_stream(CUDA_STREAM_NON_BLOCKING);
    b = gpu_stream(CUDA_STREAM_NON_BLOCKING);
    return 0;
}

static int end(void **state)
{
    (void)state;
    standin_release(a);       /* a test that fails leaves it held */
    MUST(cuMemFree_v2(word)); /* waits */
    MUST(cuStreamDestroy_v2(a));
    MUST(cuStreamDestroy_v2(b));
    return 0;
}

const struct test_hooks test_hooks = {.before_each = begin, .after_each = end};

static void write_on(CUstream stream, uint32_t value)
{
    MUST(cuMemsetD32Async(word, value, 1, stream));
}

static bool ends_within(CUstream stream, int64_t time)
{
    int64_t deadline = clock_now() + time;
    while (cuStreamQuery(stream) == CUDA_NOT_READY) {
        if (clock_now() >= deadline)
            return false;
        usleep(200);
    }
    return true;
}

/* A stream that may run has probably run after 20 ms; if it hasn't, a fault is not found. */
#define ASSERT_STUCK(stream) assert_false(ends_within(stream, CLOCK_SECOND / 50))
#define ASSERT_RUNS(stream)  assert_true(ends_within(stream, 60 * CLOCK_SECOND))

/* The first stream is held, so it writes 1 after the second one has written 2, unless that one is ordered
 * behind it. */
static void check_order(CUstream first, CUstream second, bool ordered)
{
    standin_hold(first);
    write_on(first, 1);
    write_on(second, 2);
    if (ordered)
        ASSERT_STUCK(second);
    else
        ASSERT_RUNS(second);
    standin_release(first);
    MUST(cuStreamSynchronize(first));
    MUST(cuStreamSynchronize(second));
    assert_int_equal(gpu_word(word), ordered ? 2 : 1);
}

TEST(test_a_held_stream_does_nothing)
{
    CUevent event = gpu_event();
    write_on(a, 1);
    standin_hold(a); /* the work that runs now ends first */
    write_on(a, 2);
    MUST(cuEventRecord(event, a));
    ASSERT_STUCK(a);
    assert_int_equal(cuEventQuery(event), CUDA_NOT_READY);
    assert_int_not_equal(gpu_word(word), 2);
    standin_release(a);
    MUST(cuEventSynchronize(event));
    MUST(cuEventQuery(event));
    assert_int_equal(gpu_word(word), 2);
    MUST(cuEventDestroy_v2(event));
}

TEST(test_a_hold_waits_for_work_that_runs)
{
    for (uint32_t i = 0; i < 10; i++) {
        standin_delay(5000);
        write_on(a, i);
        usleep(200); /* it has started now, or never will */
        standin_hold(a);
        standin_delay(0);
        uint32_t before = gpu_word(word);
        usleep(6000);
        assert_int_equal(gpu_word(word), before);
        standin_release(a);
        MUST(cuStreamSynchronize(a));
    }
}

TEST(test_streams_are_not_ordered)
{
    check_order(a, a, true);
    check_order(a, b, false);
}

TEST(test_events_order_streams)
{
    CUevent event = gpu_event();
    for (int i = 0; i < 2; i++) {
        standin_hold(a);
        write_on(a, 1);
        if (i == 0)
            MUST(cuEventRecord(event, a));
        MUST(cuStreamWaitEvent(b, event, 0));
        write_on(b, 2);
        if (i == 0)
            ASSERT_STUCK(b);
        else
            ASSERT_RUNS(b); /* the event is an old one */
        standin_release(a);
        MUST(cuCtxSynchronize());
        assert_int_equal(gpu_word(word), i == 0 ? 2 : 1);
    }
    MUST(cuEventDestroy_v2(event));
}

TEST(test_a_wait_is_for_what_the_event_stands_for_now)
{
    CUevent event = gpu_event();
    MUST(cuEventQuery(event)); /* never recorded */
    MUST(cuStreamWaitEvent(b, event, 0));
    standin_hold(a);
    write_on(a, 1);
    MUST(cuEventRecord(event, a));
    write_on(b, 2);
    ASSERT_RUNS(b);
    MUST(cuStreamWaitEvent(b, event, 0));
    MUST(cuEventRecord(event, b));  /* the record is one later than the wait */
    MUST(cuEventDestroy_v2(event)); /* the wait stays */
    ASSERT_STUCK(b);
    standin_release(a);
    MUST(cuStreamSynchronize(b));
}

TEST(test_the_default_stream_and_blocking_ones)
{
    CUstream blocking = gpu_stream(0), legacy = (CUstream)CUDA_STREAM_LEGACY;
    CUstream own = (CUstream)CUDA_STREAM_PER_THREAD;
    check_order(NULL, blocking, true);
    check_order(blocking, NULL, true);
    check_order(legacy, own, true);
    check_order(own, NULL, true);
    check_order(blocking, own, false);
    check_order(NULL, a, false);
    check_order(a, NULL, false);
    MUST(cuStreamDestroy_v2(blocking));
}

/* Events in the default stream are also ordered behind blocking streams. */
TEST(test_events_of_the_default_stream)
{
    CUstream blocking = gpu_stream(0);
    CUevent event = gpu_event();
    standin_hold(blocking);
    write_on(blocking, 1);
    MUST(cuEventRecord(event, NULL));
    MUST(cuStreamWaitEvent(a, event, 0));
    ASSERT_STUCK(a);
    standin_release(blocking);
    MUST(cuStreamSynchronize(a));
    assert_int_equal(gpu_word(word), 1);
    MUST(cuEventDestroy_v2(event));
    MUST(cuStreamDestroy_v2(blocking));
}

TEST(test_work_starts_late)
{
    int64_t start = clock_now();
    standin_delay(10000);
    for (uint32_t i = 0; i < 10; i++)
        write_on(a, i);
    MUST(cuStreamSynchronize(a));
    standin_delay(0);
    assert_true(clock_now() - start > CLOCK_SECOND / 200); /* 50 ms on average */
}

/* Without gates a missing event is found by chance: in 200 tries, practically always. */
TEST(test_chance_finds_a_missing_event)
{
    int wrong = 0;
#ifdef __SANITIZE_THREAD__
    skip(); /* it would find the race of the two streams */
#endif
    standin_delay(500);
    for (uint32_t i = 0; i < 200; i++) {
        write_on(a, i);
        MUST(cuMemsetD32Async(word, i + 1000, 1, b));
        MUST(cuCtxSynchronize());
        wrong += gpu_word(word) == i;
    }
    standin_delay(0);
    assert_in_range(wrong, 1, 199);
}

TEST(test_a_destroyed_stream_ends_its_work)
{
    CUstream stream = gpu_stream(CUDA_STREAM_NON_BLOCKING);
    CUevent event = gpu_event();
    standin_delay(2000);
    for (uint32_t i = 0; i < 10; i++)
        write_on(stream, i);
    MUST(cuEventRecord(event, stream));
    MUST(cuStreamDestroy_v2(stream));
    standin_delay(0);
    MUST(cuEventSynchronize(event));
    assert_int_equal(gpu_word(word), 9);
    assert_int_equal(cuStreamQuery(stream), CUDA_INVALID_HANDLE);
    assert_int_equal(cuMemsetD32Async(word, 1, 1, stream), CUDA_INVALID_HANDLE);
    MUST(cuEventDestroy_v2(event));
}

static atomic_int call_result;

static void call_driver(void *argument)
{
    CUstream stream = argument;
    atomic_store(&call_result, cuStreamQuery(stream));
}

TEST(test_host_functions_are_work)
{
    atomic_store(&call_result, -1);
    standin_hold(a);
    MUST(cuLaunchHostFunc(a, call_driver, b));
    ASSERT_STUCK(a);
    assert_int_equal(atomic_load(&call_result), -1);
    standin_release(a);
    MUST(cuStreamSynchronize(a));
    assert_int_equal(atomic_load(&call_result), CUDA_NOT_PERMITTED);
}

TEST(test_capture)
{
    CUstreamCaptureStatus status;
    CUstreamCaptureMode mode = CUDA_CAPTURE_RELAXED;
    CUevent event = gpu_event();
    CUdeviceptr address;
    write_on(a, 1);
    MUST(cuStreamSynchronize(a));
    standin_capture(a, true);
    MUST(cuStreamIsCapturing(a, &status));
    assert_int_equal(status, CUDA_CAPTURING);
    MUST(cuStreamIsCapturing(b, &status));
    assert_int_equal(status, CUDA_NOT_CAPTURING);
    write_on(a, 2); /* becomes a part of the graph */
    MUST(cuEventRecord(event, a));
    assert_int_equal(cuMemAlloc_v2(&address, 4), CUDA_CAPTURE_UNSUPPORTED);
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CUDA_CAPTURE_GLOBAL);
    assert_int_equal(cuEventQuery(event), CUDA_CAPTURED_EVENT);
    assert_int_equal(cuStreamSynchronize(a), CUDA_CAPTURE_UNSUPPORTED);
    assert_int_equal(gpu_word(word), 1);
    MUST(cuStreamWaitEvent(b, event, 0)); /* draws it in */
    MUST(cuStreamIsCapturing(b, &status));
    assert_int_equal(status, CUDA_CAPTURING);
    standin_capture(a, false);
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    MUST(cuStreamSynchronize(b));
    assert_int_equal(gpu_word(word), 1);
    MUST(cuEventDestroy_v2(event));
}

TEST(test_capture_of_a_blocking_stream)
{
    CUstreamCaptureStatus status;
    CUstream blocking = gpu_stream(0);
    standin_capture(blocking, true);
    assert_int_equal(cuStreamIsCapturing(NULL, &status), CUDA_CAPTURE_IMPLICIT);
    assert_int_equal(cuMemsetD32Async(word, 1, 1, NULL), CUDA_CAPTURE_IMPLICIT);
    write_on(a, 3);
    standin_capture(blocking, false);
    MUST(cuStreamIsCapturing(NULL, &status));
    MUST(cuStreamSynchronize(a));
    assert_int_equal(gpu_word(word), 3);
    MUST(cuStreamDestroy_v2(blocking));
}

TEST(test_events_and_streams_of_two_devices)
{
    CUevent event = gpu_event();
    gpu_use(1);
    CUstream other = gpu_stream(CUDA_STREAM_NON_BLOCKING);
    CUdeviceptr there = gpu_allocate(4);
    assert_int_equal(cuEventRecord(event, other), CUDA_INVALID_HANDLE);
    standin_hold(a);
    write_on(a, 7);
    MUST(cuEventRecord(event, a));
    MUST(cuStreamWaitEvent(other, event, 0));
    MUST(cuMemcpyAsync(there, word, 4, other)); /* from one device to the other */
    ASSERT_STUCK(other);
    standin_release(a);
    MUST(cuStreamSynchronize(other));
    assert_int_equal(gpu_word(there), 7);
    MUST(cuMemFree_v2(there));
    MUST(cuStreamDestroy_v2(other));
    MUST(cuEventDestroy_v2(event));
    gpu_use(0);
}
