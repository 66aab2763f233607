/* test_parts.c - groups whose members share memory: results are as if the members ran one by one. */
#include "group.h"

#include <string.h>

enum { ROUNDS = 10, LENGTH = 6, ROOM = MOST_RANKS > 4 ? MOST_RANKS : 4 };

/* A group of `count` float32 vectors, in place. */
static hvd_request group_of(const char *name, hvd_tensor *tensors, float **data, const int64_t *lengths,
                            int count)
{
    for (int i = 0; i < count; i++)
        tensors[i] = tensor_of(data[i], HVD_FLOAT32, &lengths[i], 1);
    hvd_request request = request_of(HVD_ALLREDUCE, name, tensors);
    request.count = count;
    request.grouped = 1;
    return request;
}

static hvd_code run(struct member *member, const hvd_request *request, hvd_status *status)
{
    hvd_handle *handle;
    hvd_code code = hvd_submit(member->context, request, &handle, status);
    CHECK(code == HVD_OK, "%s", status->text);
    code = hvd_wait(handle, 30, status);
    hvd_release(handle);
    return code;
}

/* x twice, a view of it, and one that is apart; named and unnamed, and again under the same name. */
static void sums(struct member *member)
{
    float sum = sum_of(member), size = (float)member->size;
    for (int round = 0; round < ROUNDS; round++) {
        float x[LENGTH], y[2];
        for (int i = 0; i < LENGTH; i++)
            x[i] = (float)(member->rank + 1);
        y[0] = y[1] = (float)(member->rank + 1);
        hvd_tensor tensors[4];
        hvd_status status;
        hvd_request request = group_of(round % 2 ? "tied" : NULL, tensors, (float *[]){x, y, x, x + 2},
                                       (int64_t[]){LENGTH, 2, LENGTH, 2}, 4);
        CHECK_OK(run(member, &request, &check_status));
        for (int i = 0; i < LENGTH; i++) {
            float expected = sum * size * (i == 2 || i == 3 ? size : 1);
            CHECK(x[i] == expected, "round %d: element %d is %g, not %g", round, i, x[i], expected);
        }
        CHECK(y[0] == sum && y[1] == sum, "round %d: %g, %g", round, y[0], y[1]);
        CHECK(run(member, &request, &status) == HVD_OK, "%s", status.text);
    }
}

static void averages(struct member *member)
{
    float x[LENGTH];
    for (int i = 0; i < LENGTH; i++)
        x[i] = (float)(member->rank + 1);
    hvd_tensor tensors[3];
    hvd_request request =
        group_of("tied", tensors, (float *[]){x, x, x}, (int64_t[]){LENGTH, LENGTH, LENGTH}, 3);
    const hvd_reduction reductions[] = {HVD_AVERAGE, HVD_MAX, HVD_ADASUM};
    for (int i = 0; i < 3; i++) {
        request.reduction = reductions[i];
        CHECK_OK(run(member, &request, &check_status));
    }
    float expected = sum_of(member) / (float)member->size;
    CHECK(x[0] > expected * 0.999f && x[0] < expected * 1.001f, "%g, not %g", x[0], expected);
}

/* What one member writes another one reads: y = sum of x, z = sum of y. */
static void through_outputs(struct member *member)
{
    float x = (float)(member->rank + 1), y = 0, z = 0;
    int64_t one = 1;
    hvd_tensor inputs[2], outputs[2];
    hvd_request request = group_of("chained", inputs, (float *[]){&x, &y}, (int64_t[]){1, 1}, 2);
    outputs[0] = tensor_of(&y, HVD_FLOAT32, &one, 1);
    outputs[1] = tensor_of(&z, HVD_FLOAT32, &one, 1);
    request.outputs = outputs;
    CHECK_OK(run(member, &request, &check_status));
    CHECK(y == sum_of(member) && z == y * (float)member->size, "%g, %g", y, z);
}

/* The next request on the same memory comes behind the whole group, in every process set. */
static void in_order(struct member *member)
{
    int32_t everybody[] = {0, 1, 2, 3}, id;
    CHECK_OK(hvd_process_set_add(member->context, everybody, member->size, &id, &check_status));
    for (int round = 0; round < ROUNDS; round++) {
        float x = (float)(member->rank + 1);
        int64_t one = 1;
        hvd_tensor tensors[2], single = tensor_of(&x, HVD_FLOAT32, &one, 1);
        hvd_request group = group_of(NULL, tensors, (float *[]){&x, &x}, (int64_t[]){1, 1}, 2);
        group.process_set = round % 2 ? id : 0;
        group.prescale = &(double){2};
        hvd_request least = request_of(HVD_ALLREDUCE, "least", &single);
        least.reduction = HVD_MIN;
        least.postscale = &(double){0.5};
        hvd_request unnamed = request_of(HVD_ALLREDUCE, NULL, &single);
        hvd_handle *handles[3];
        CHECK_OK(hvd_submit(member->context, &group, &handles[0], &check_status));
        CHECK_OK(hvd_submit(member->context, &least, &handles[1], &check_status));
        CHECK_OK(hvd_submit(member->context, &unnamed, &handles[2], &check_status));
        for (int i = 2; i >= 0; i--)
            finish(handles[i]);
        float size = (float)member->size, expected = 2 * sum_of(member) * 2 * size / 2 * size;
        CHECK(x == expected, "round %d: %g, not %g", round, x, expected);
    }
}

/* ---- what is submitted after a group ------------------------------------------------------------------- */

enum { LATER_REDUCED, LATER_GATHERED, LATER_SCATTERED, LATER_SENT, LATER_EXCHANGED, LATER_GROUPED, LATER };

/* Every rank gives `value` in two elements for each rank; a later operation reads it. */
struct later {
    float data[2 * ROOM], output[2 * ROOM * ROOM];
    int64_t rows, out_rows;
    hvd_tensor input[2], result[2];
    hvd_request request;
};

static void describe_later(struct later *later, int kind, const struct member *member, float *data)
{
    static const hvd_operation operations[] = {HVD_ALLREDUCE, HVD_ALLGATHER, HVD_REDUCESCATTER,
                                               HVD_BROADCAST, HVD_ALLTOALL,  HVD_ALLREDUCE};
    later->rows = 2 * member->size;
    later->out_rows = kind == LATER_GATHERED    ? later->rows * member->size
                      : kind == LATER_SCATTERED ? 2
                                                : later->rows;
    for (int i = 0; i < 2; i++) {
        later->input[i] = tensor_of(data, HVD_FLOAT32, &later->rows, 1);
        later->result[i] = tensor_of(later->output, HVD_FLOAT32, &later->out_rows, 1);
    }
    later->request = request_of(operations[kind], "later", later->input);
    later->request.outputs = later->result;
    later->request.root = member->size - 1;
    if (kind == LATER_GROUPED) { /* the second one reads what the first one wrote */
        later->request.count = 2;
        later->request.grouped = 1;
        later->input[1].data = later->output;
    }
}

/* A group of three parts, maybe another one, then an operation that only reads what they write. */
static void behind_a_group(struct member *member, int kind, int groups, int set)
{
    static struct later laters[ROOM];
    struct later *later = &laters[member->rank];
    float *x = later->data, size = (float)member->size;
    int64_t lengths[] = {2 * member->size, 2 * member->size, 2 * member->size};
    hvd_tensor tensors[2][3];
    hvd_handle *handles[3];
    for (int i = 0; i < 2 * member->size; i++)
        x[i] = 1;
    describe_later(later, kind, member, x);
    for (int i = 0; i < groups; i++) {
        hvd_request group = group_of(i ? NULL : "first", tensors[i], (float *[]){x, x, x}, lengths, 3);
        group.process_set = set;
        CHECK_OK(hvd_submit(member->context, &group, &handles[i], &check_status));
    }
    CHECK_OK(hvd_submit(member->context, &later->request, &handles[groups], &check_status));
    for (int i = groups; i >= 0; i--)
        finish(handles[i]);
    float expected = 1;
    for (int i = 0; i < 3 * groups; i++)
        expected *= size;
    CHECK(x[0] == expected, "%g, not %g", x[0], expected);
    for (int i = 0; i < (kind == LATER_GROUPED ? 2 : kind == LATER_REDUCED || kind == LATER_SCATTERED); i++)
        expected *= size;
    for (int64_t i = 0; i < later->out_rows; i++)
        CHECK(later->output[i] == expected, "operation %d behind %d groups: %g, not %g", kind, groups,
              later->output[i], expected);
}

static void behind_groups(struct member *member)
{
    for (int kind = 0; kind < LATER; kind++)
        for (int groups = 1; groups <= 2; groups++)
            behind_a_group(member, kind, groups, 0);
}

static void behind_groups_of_another_set(struct member *member)
{
    int32_t everybody[] = {0, 1, 2, 3}, id;
    behind_groups(member);
    CHECK_OK(hvd_process_set_add(member->context, everybody, member->size, &id, &check_status));
    behind_groups(member);
    for (int kind = 0; kind < LATER; kind++)
        behind_a_group(member, kind, 1, id);
    CHECK_OK(hvd_process_set_remove(member->context, id, &check_status));
    behind_groups(member);
}

/* A request that writes the memory of a group waits for all of its parts, even if the group fails. */
static void written_behind_a_group(struct member *member)
{
    float x[2] = {1, 1}, y[2] = {1, 1};
    hvd_tensor tensors[3];
    hvd_handle *handles[2];
    for (int round = 0; round < ROUNDS; round++) {
        bool fails = round % 2;
        x[0] = x[1] = y[0] = y[1] = 1;
        hvd_request group = group_of("group", tensors, (float *[]){x, x, fails && member->rank ? y : x},
                                     (int64_t[]){2, 2, 2}, 3);
        float own[2] = {7, 7};
        int64_t two = 2;
        hvd_tensor input = tensor_of(own, HVD_FLOAT32, &two, 1), output = tensor_of(x, HVD_FLOAT32, &two, 1);
        hvd_request copy = request_of(HVD_BROADCAST, "copy", &input);
        hvd_status status;
        copy.outputs = &output;
        CHECK_OK(hvd_submit(member->context, &group, &handles[0], &check_status));
        CHECK_OK(hvd_submit(member->context, &copy, &handles[1], &check_status));
        finish(handles[1]);
        CHECK(x[0] == 7 && x[1] == 7, "round %d: %g %g", round, x[0], x[1]);
        CHECK(hvd_wait(handles[0], 30, &status) == (fails ? HVD_MISMATCH : HVD_OK), "%s", status.text);
        hvd_release(handles[0]);
        CHECK(x[0] == 7 && x[1] == 7, "round %d: %g %g", round, x[0], x[1]);
    }
}

/* Ranks that submit in another order agree on one, and none waits for the other. */
static void in_any_order(struct member *member)
{
    for (int round = 0; round < ROUNDS; round++) {
        float x[2] = {1, 1}, y[2];
        int64_t two = 2;
        hvd_tensor tensors[3], input = tensor_of(x, HVD_FLOAT32, &two, 1),
                               output = tensor_of(y, HVD_FLOAT32, &two, 1);
        hvd_request group = group_of("group", tensors, (float *[]){x, x, x}, (int64_t[]){2, 2, 2}, 3);
        hvd_request sum = request_of(HVD_ALLREDUCE, "sum", &input);
        hvd_handle *handles[2];
        bool first = (member->rank + round) % 2;
        sum.outputs = &output;
        CHECK_OK(hvd_submit(member->context, first ? &sum : &group, &handles[0], &check_status));
        CHECK_OK(hvd_submit(member->context, first ? &group : &sum, &handles[1], &check_status));
        finish(handles[0]);
        finish(handles[1]);
        float size = (float)member->size;
        CHECK(x[0] == size * size * size, "%g", x[0]);
    }
}

/* Members shared on rank 0 only, or a group of another length: an error on all ranks, and the job goes on. */
static void one_rank_only(struct member *member)
{
    for (int round = 0; round < ROUNDS; round++) {
        float x[2] = {0}, y[2] = {0}, z[2] = {0};
        hvd_tensor tensors[3];
        hvd_status status;
        bool shares = member->rank == round % member->size;
        int count = round % 3 == 2 && !shares ? 2 : 3;
        hvd_request request = group_of(round % 2 ? "half" : NULL, tensors, (float *[]){x, y, shares ? y : z},
                                       (int64_t[]){2, 2, 2}, count);
        hvd_code code = run(member, &request, &status);
        const char *text = round % 3 == 2 ? "the number of tensors" : "the memory of tensor 2";
        CHECK(code == HVD_MISMATCH && strstr(status.text, text), "round %d: %s: %s", round,
              hvd_code_name(code), status.text);
        /* Their unnamed requests still mean the same. */
        hvd_request next = request_of(HVD_ALLREDUCE, NULL, tensors);
        CHECK_OK(run(member, &next, &check_status));
        check_allreduce_works(member, "after");
    }
}

/* On even ranks the second request shares memory with the group and the third one with none; on odd ranks the
 * third one reads what the second one writes. */
static void shared_differently(struct member *member)
{
    for (int round = 0; round < ROUNDS; round++) {
        bool even = member->rank % 2 == 0;
        float x[2] = {1, 1}, own[2] = {1, 1}, second[2] = {0}, third[2] = {0};
        int64_t two = 2;
        hvd_tensor tensors[3], inputs[2], outputs[2];
        hvd_handle *handles[3];
        hvd_request requests[] = {group_of("group", tensors, (float *[]){x, x, x}, (int64_t[]){2, 2, 2}, 3),
                                  request_of(HVD_ALLREDUCE, "second", &inputs[0]),
                                  request_of(HVD_ALLREDUCE, "third", &inputs[1])};
        inputs[0] = tensor_of(even ? x : own, HVD_FLOAT32, &two, 1);
        outputs[0] = tensor_of(second, HVD_FLOAT32, &two, 1);
        inputs[1] = tensor_of(even ? own : second, HVD_FLOAT32, &two, 1);
        outputs[1] = tensor_of(third, HVD_FLOAT32, &two, 1);
        requests[1].outputs = &outputs[0];
        requests[2].outputs = &outputs[1];
        for (int i = 0; i < 3; i++)
            CHECK_OK(hvd_submit(member->context, &requests[i], &handles[i], &check_status));
        for (int i = 0; i < 3; i++)
            finish(handles[i]);
        float size = (float)member->size, odds = (float)(member->size / 2), evens = size - odds;
        float sum = evens * size * size * size + odds;
        CHECK(second[0] == sum && second[1] == sum, "round %d: %g, not %g", round, second[0], sum);
        CHECK(third[0] == evens + odds * sum, "round %d: %g, not %g", round, third[0], evens + odds * sum);
    }
}

/* A set is removed, and a barrier and a join end, once the group before them has run. */
static void ended_behind_a_group(struct member *member)
{
    int32_t everybody[] = {0, 1, 2, 3}, id;
    hvd_request barrier = {.struct_size = sizeof barrier, .operation = HVD_BARRIER};
    hvd_request join = {.struct_size = sizeof join, .operation = HVD_JOIN};
    for (int round = 0; round < ROUNDS; round++) {
        float x[2] = {1, 1}, size = (float)member->size;
        hvd_tensor tensors[3];
        hvd_handle *handle;
        hvd_request group = group_of(NULL, tensors, (float *[]){x, x, x}, (int64_t[]){2, 2, 2}, 3);
        CHECK_OK(hvd_process_set_add(member->context, everybody, member->size, &id, &check_status));
        group.process_set = round % 2 ? id : 0;
        CHECK_OK(hvd_submit(member->context, &group, &handle, &check_status));
        if (round % 3 == 1)
            CHECK_OK(hvd_run(member->context, &barrier, NULL, &check_status));
        if (round % 3 == 2)
            CHECK_OK(hvd_run(member->context, &join, NULL, &check_status));
        if (round % 2 == 0)
            CHECK_OK(hvd_process_set_remove(member->context, id, &check_status));
        finish(handle);
        CHECK(x[0] == size * size * size, "round %d: %g", round, x[0]);
        if (round % 2)
            CHECK_OK(hvd_process_set_remove(member->context, id, &check_status));
    }
}

/* A group in flight when its set is removed runs as a whole or not at all. */
static void removed_with_a_group(struct member *member)
{
    int32_t everybody[] = {0, 1, 2, 3}, id;
    for (int round = 0; round < ROUNDS; round++) {
        float x[2] = {1, 1}, size = (float)member->size;
        hvd_tensor tensors[3];
        hvd_handle *handle;
        hvd_status status;
        hvd_request group = group_of(NULL, tensors, (float *[]){x, x, x}, (int64_t[]){2, 2, 2}, 3);
        CHECK_OK(hvd_process_set_add(member->context, everybody, member->size, &id, &check_status));
        group.process_set = id;
        CHECK_OK(hvd_submit(member->context, &group, &handle, &check_status));
        CHECK_OK(hvd_process_set_remove(member->context, id, &check_status));
        hvd_code code = hvd_wait(handle, 30, &status);
        hvd_release(handle);
        CHECK(code == HVD_OK || code == HVD_SHUT_DOWN, "round %d: %s", round, status.text);
        CHECK(x[0] == (code ? 1 : size * size * size), "round %d: %g after %s", round, x[0],
              hvd_code_name(code));
    }
    check_allreduce_works(member, "after");
}

/* Only rank 0 has the group: the others have joined, and run all of its parts with nothing of their own. */
static void joined_beside_a_group(struct member *member)
{
    float x[2] = {2, 2}, y[2] = {3, 3};
    double d[1] = {5};
    int64_t two = 2, one = 1;
    hvd_tensor tensors[4] = {tensor_of(x, HVD_FLOAT32, &two, 1), tensor_of(d, HVD_FLOAT64, &one, 1),
                             tensor_of(x, HVD_FLOAT32, &two, 1), tensor_of(y, HVD_FLOAT32, &two, 1)};
    hvd_request group = request_of(HVD_ALLREDUCE, "alone", tensors);
    hvd_request join = {.struct_size = sizeof join, .operation = HVD_JOIN};
    group.count = 4;
    group.grouped = 1;
    for (int round = 0; round < ROUNDS; round++) {
        if (member->rank == 0)
            CHECK_OK(hvd_run(member->context, &group, NULL, &check_status));
        CHECK_OK(hvd_run(member->context, &join, NULL, &check_status));
    }
    CHECK(x[0] == 2 && x[1] == 2 && y[1] == 3 && d[0] == 5, "%g %g %g %g", x[0], x[1], y[1], d[0]);
}

static void note(void *argument, const hvd_status *status)
{
    *(hvd_code *)argument = status->code;
}

/* It holds its name to the end, which `done` sees once; a rank that joins comes behind it. */
static void name_and_join(struct member *member)
{
    static _Thread_local float x[1];
    hvd_tensor tensors[2];
    hvd_handle *handle, *second;
    hvd_code seen = HVD_IN_PROGRESS;
    hvd_status status;
    hvd_request request = group_of("tied", tensors, (float *[]){x, x}, (int64_t[]){1, 1}, 2);
    hvd_request join = {.struct_size = sizeof join, .operation = HVD_JOIN};
    x[0] = 1;
    request.done = note;
    request.done_argument = &seen;
    if (member->rank == 0) {
        CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
        hvd_code code = hvd_submit(member->context, &request, &second, &status);
        CHECK(code == HVD_DUPLICATE_NAME, "%s", hvd_code_name(code));
    }
    CHECK_OK(hvd_run(member->context, &join, NULL, &check_status));
    if (member->rank == 0) {
        finish(handle);
        CHECK(x[0] == 1, "%g", x[0]);
    }
    check_allreduce_works(member, "after");
    CHECK(member->rank || seen == HVD_OK, "%d", (int)seen);
}

/* Its parts end with the job. */
static void ended_by_shutdown(struct member *member)
{
    static _Thread_local float x[1];
    hvd_tensor tensors[3];
    hvd_handle *handle = NULL;
    hvd_request request = group_of(NULL, tensors, (float *[]){x, x, x}, (int64_t[]){1, 1, 1}, 3);
    if (!member->rank)
        CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
    check_allreduce_works(member, "nobody leaves before");
    hvd_shutdown(member->context);
    member->context = NULL;
    if (!member->rank)
        CHECK(hvd_test(handle, NULL) == HVD_SHUT_DOWN, "rank 0");
    hvd_release(handle);
}

GROUP_TEST(test_sums, sums, 1, 4, EVERY_TRANSPORT)
GROUP_TEST(test_averages, averages, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_through_outputs, through_outputs, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_in_order, in_order, 1, 4, EVERY_TRANSPORT)
GROUP_TEST(test_behind_groups, behind_groups, 1, 4, EVERY_TRANSPORT)
GROUP_TEST(test_behind_groups_of_another_set, behind_groups_of_another_set, 1, 4, .transport = "shm")
GROUP_TEST(test_written_behind_a_group, written_behind_a_group, 2, 4, .transport = "shm")
GROUP_TEST(test_in_any_order, in_any_order, 2, 4, .transport = "shm")
GROUP_TEST(test_one_rank_only, one_rank_only, 2, 4, EVERY_TRANSPORT)
GROUP_TEST(test_shared_differently, shared_differently, 2, 4, EVERY_TRANSPORT)
GROUP_TEST(test_ended_behind_a_group, ended_behind_a_group, 2, 3, .transport = "shm")
GROUP_TEST(test_removed_with_a_group, removed_with_a_group, 2, 3, .transport = "shm")
GROUP_TEST(test_joined_beside_a_group, joined_beside_a_group, 2, 3, EVERY_TRANSPORT)
GROUP_TEST(test_name_and_join, name_and_join, 2, 3, EVERY_TRANSPORT)
GROUP_TEST(test_ended_by_shutdown, ended_by_shutdown, 2, 3, EVERY_TRANSPORT)
