/* test_device.c - tensors on a device: which are refused, and what happens when the device or a rank fails.
 * The operations themselves are in the tests that device.h puts on a device. */
#include "device.h"
#include "group.h"

#include <string.h>

enum { ELEMENTS = 5000 };

/* On this rank's device. */
static hvd_tensor make_tensor(const struct member *member, const int64_t *shape)
{
    hvd_tensor tensor = tensor_of(NULL, HVD_FLOAT32, shape, 1);
    device_register();
    tensor.data = device_allocate(member->rank, (size_t)*shape * sizeof(float));
    tensor.device_type = DEVICE_TYPE;
    tensor.device_id = device_id_of(member->rank);
    return tensor;
}

static void check_refused(struct member *member, const hvd_tensor *tensors, int32_t count, hvd_code code,
                          const char *words)
{
    hvd_status status;
    hvd_request request = request_of(HVD_ALLREDUCE, "refused", tensors);
    request.count = count;
    hvd_code got = hvd_run(member->context, &request, NULL, &status);
    CHECK(got == code && strstr(status.text, words), "%s: %s", hvd_code_name(got), status.text);
}

static void refusals(struct member *member)
{
    int64_t shape[] = {4};
    float data[4] = {0};
    hvd_tensor tensors[] = {tensor_of(data, HVD_FLOAT32, shape, 1), make_tensor(member, shape)};
    check_refused(member, tensors, 2, HVD_INVALID_ARGUMENT, ", tensor 0 on one of type 1; ");
    tensors[0].device_type = 13;
    check_refused(member, tensors, 1, HVD_UNSUPPORTED,
                  "tensor 0 is on a device of type 13, which this process");
    tensors[0].device_type = 200;
    check_refused(member, tensors, 1, HVD_UNSUPPORTED, "copy it to the CPU");
    if (member->rank == 0 && member->size > 1)
        tensors[0].device_type = HVD_CPU;
    else
        tensors[0] = tensors[1];
    if (member->size > 1)
        check_refused(member, tensors, 1, HVD_MISMATCH, "type of device");
    device_release(tensors[1].data);
    check_allreduce_works(member, "after");
}

/* The caller's stream writes the input after the request was submitted, and nobody may read it before. */
static void behind_the_stream(struct member *member)
{
    int64_t shape[] = {ELEMENTS};
    float values[ELEMENTS];
    hvd_tensor tensor = make_tensor(member, shape);
    for (int turn = 0; turn < 20; turn++) {
        for (int i = 0; i < ELEMENTS; i++)
            values[i] = (float)(member->rank + i + turn);
        hvd_request request = request_of(HVD_ALLREDUCE, "sum", &tensor);
        request.stream = device_stream(member->rank);
        device_write_on(request.stream, tensor.data, values, sizeof values);
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
        device_read(values, tensor.data, sizeof values);
        for (int i = 0; i < ELEMENTS; i++) {
            int expected = member->size * (member->size - 1) / 2 + member->size * (i + turn);
            CHECK(values[i] == (float)expected, "element %d is %g, not %d", i, (double)values[i], expected);
        }
    }
    device_release(tensor.data);
}

/* Two tensors that two streams write, in a group that is submitted before either has. `streams` are those
 * that the request names. Operations of `set` run meanwhile. Returns whether the sums are right. */
static bool sum_of_two_streams(struct member *member, int32_t set, void *const *named)
{
    int64_t shape[] = {ELEMENTS};
    float values[2][ELEMENTS], sums[2][ELEMENTS];
    hvd_tensor tensors[] = {make_tensor(member, shape), make_tensor(member, shape)};
    void *streams[] = {device_stream(member->rank), device_side_stream(member->rank)};
    hvd_handle *handle;
    float value = 1;
    hvd_tensor scalar = tensor_of(&value, HVD_FLOAT32, NULL, 0);
    hvd_request meanwhile = request_of(HVD_ALLREDUCE, "meanwhile", &scalar);
    meanwhile.process_set = set;
    for (int i = 0; i < 2; i++) {
        for (int at = 0; at < ELEMENTS; at++)
            values[i][at] = (float)(member->rank + i + at);
        device_hold(streams[i]);
        device_write_on(streams[i], tensors[i].data, values[i], sizeof values[i]);
    }
    hvd_request request = request_of(HVD_ALLREDUCE, "two", tensors);
    request.count = 2;
    request.streams = named;
    CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
    device_go_on(streams[0]);
    for (int i = 0; i < 20; i++)
        CHECK_OK(hvd_run(member->context, &meanwhile, NULL, &check_status));
    bool early = hvd_test(handle, NULL) != HVD_IN_PROGRESS;
    CHECK(!early || named[1] != streams[1], "done before the second stream was");
    if (named[1] == streams[1])
        device_go_on(streams[1]);
    CHECK_OK(hvd_wait(handle, -1, &check_status));
    for (int i = 0; i < 2; i++)
        device_read(sums[i], tensors[i].data, sizeof sums[i]);
    hvd_release(handle);
    bool right = true;
    for (int i = 0; i < 2; i++)
        for (int at = 0; at < ELEMENTS; at++)
            right &= sums[i][at] == (float)(member->size * (member->size - 1) / 2 + member->size * (i + at));
    device_finish(streams[1]);
    device_release(tensors[0].data);
    device_release(tensors[1].data);
    return right;
}

static void several_streams(struct member *member)
{
    void *both[] = {device_stream(member->rank), device_side_stream(member->rank)};
    void *one[] = {both[0], both[0]};
    int32_t ranks[] = {0, 1, 2}, set;
    CHECK_OK(hvd_process_set_add(member->context, ranks, member->size, &set, &check_status));
    for (int turn = 0; turn < 5; turn++) {
        CHECK(sum_of_two_streams(member, set, both), "read before it was written");
        CHECK(!sum_of_two_streams(member, set, one), "the stream that was left out was not needed");
    }
}

#ifndef HVD_ON_CUDA
/* Requests of other process sets go on while one waits for its device. */
static void a_late_device(struct member *member)
{
    hvd_status status;
    int64_t shape[] = {ELEMENTS};
    int32_t set;
    float value = 1;
    hvd_tensor late = make_tensor(member, shape), scalar = tensor_of(&value, HVD_FLOAT32, NULL, 0);
    hvd_request request = request_of(HVD_ALLREDUCE, "late", &late);
    hvd_handle *handle;
    CHECK_OK(hvd_process_set_add(member->context, (int32_t[]){0, 1}, 2, &set, &check_status));
    device_delay(member->rank, 60);
    CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
    request = request_of(HVD_ALLREDUCE, "meanwhile", &scalar);
    request.process_set = set;
    for (int i = 0; i < 10; i++)
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    CHECK(hvd_test(handle, &status) == HVD_IN_PROGRESS, "%s", status.text);
    /* Longer than a thread waits before it sleeps, and nothing wakes it. */
    device_delay(member->rank, 0.1);
    finish(handle);
    device_release(late.data);
}

/* Rank 0's device fails: an error on all ranks, and their memory is theirs again though copies were under
 * way. */
static void a_broken_device(struct member *member)
{
    hvd_status status;
    int64_t shape[] = {ELEMENTS};
    hvd_tensor tensor = make_tensor(member, shape);
    hvd_request request = request_of(HVD_ALLREDUCE, "broken", &tensor);
    device_delay(member->rank, member->rank ? 60 : 0);
    device_break(0);
    hvd_code code = hvd_run(member->context, &request, NULL, &status);
    CHECK(code && strstr(status.text, "the test device is broken"), "%s", status.text);
    device_release(tensor.data);
    device_delay(member->rank, 0);
}
#endif

GROUP_TEST(test_refusals, refusals, 1, 3, .transport = "shm")
GROUP_TEST(test_behind_the_stream, behind_the_stream, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_several_streams, several_streams, 1, 3, EVERY_TRANSPORT)
#ifndef HVD_ON_CUDA
GROUP_TEST(test_a_late_device, a_late_device, 2, 2, EVERY_TRANSPORT)
GROUP_TEST(test_a_broken_device, a_broken_device, 1, 3, .transport = "shm") /* it stays broken */
#endif
