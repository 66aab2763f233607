/* test_join.c - ranks that run out of data: what the others get meanwhile, and how it ends. */
#include "values.h"

#include "base/types.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Everybody joins; gives the last one. */
static int join(struct member *member)
{
    hvd_request request = {.struct_size = sizeof request, .operation = HVD_JOIN};
    hvd_handle *handle;
    int32_t last = -1;
    CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
    CHECK_OK(hvd_wait(handle, 30, &check_status));
    CHECK_OK(hvd_joined_last(handle, &last, &check_status));
    hvd_release(handle);
    return last;
}

static hvd_code reduce_as(struct member *member, hvd_reduction reduction, const char *name, double *value,
                          hvd_status *status)
{
    hvd_tensor tensor = tensor_of(value, HVD_FLOAT64, NULL, 0);
    hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
    request.reduction = reduction;
    return hvd_run(member->context, &request, NULL, status);
}

/* Rank r has 3 r batches. While the lower ranks have joined, the higher ones get the reduction over those
 * that are left; averages still divide by the number of all ranks. */
static void uneven_work(struct member *member)
{
    static const hvd_reduction kinds[] = {HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT, HVD_AVERAGE};
    for (int step = 0; step < 3 * member->rank; step++) {
        int first = step / 3 + 1; /* the lowest rank that still works */
        for (int r = 0; r < 5; r++) {
            double value = member->rank + 1, sum = 0, product = 1;
            char name[32];
            for (int rank = first; rank < member->size; rank++) {
                sum += rank + 1;
                product *= rank + 1;
            }
            const double expected[] = {sum, first + 1, member->size, product, sum / member->size};
            snprintf(name, sizeof name, "step%d.%d", step % 2, r);
            CHECK_OK(reduce_as(member, kinds[r], step % 3 ? name : NULL, &value, &check_status));
            CHECK(fabs(value - expected[r]) < 1e-9, "step %d: %s is %g, not %g", step, name, value,
                  expected[r]);
        }
        hvd_request barrier = {.struct_size = sizeof barrier, .operation = HVD_BARRIER};
        CHECK_OK(hvd_run(member->context, &barrier, NULL, &check_status));
    }
    int last = join(member);
    CHECK(last == member->size - 1, "the last is %d", last);
    /* Unnamed requests have drifted apart; join has brought them together. */
    double value = 1;
    CHECK_OK(reduce_as(member, HVD_SUM, NULL, &value, &check_status));
    CHECK(value == member->size, "the sum is %g", value);
    CHECK(join(member) >= 0, "no second join");
}

/* ---- factors ------------------------------------------------------------------------------------------- */

struct scaled {
    hvd_dtype dtype;
    hvd_reduction reduction;
    double prescale;
    int32_t priority; /* of the one that rank 0 submits, too */
};

/* Exact in all types; unsigned ones stay positive. */
static const double rank_0_gives = 4, rank_1_gives = 2, alone = 6;

static hvd_handle *submit_scaled(struct member *member, const struct scaled *scaled, const char *name,
                                 void *data, double value, int32_t priority)
{
    hvd_handle *handle;
    hvd_tensor tensor = tensor_of(data, scaled->dtype, NULL, 0);
    hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
    number_put(scaled->dtype, data, value);
    request.reduction = scaled->reduction;
    request.prescale = &scaled->prescale;
    request.priority = priority;
    CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
    return handle;
}

static void check_scaled(const struct scaled *scaled, hvd_handle *handle, const void *data, double a,
                         double b, int size)
{
    double x = a * scaled->prescale, y = b * scaled->prescale, expected = x + y;
    if (scaled->reduction == HVD_PRODUCT)
        expected = x * y;
    if (scaled->reduction == HVD_MIN || scaled->reduction == HVD_MAX)
        expected = (x < y) == (scaled->reduction == HVD_MIN) ? x : y;
    if (scaled->reduction == HVD_AVERAGE)
        expected = is_integer(scaled->dtype) ? (double)((int)expected / size) : expected / size;
    finish(handle);
    check_value(scaled->dtype, data, 0, expected, hvd_dtype_name(scaled->dtype));
}

/* Rank 1 submits two requests. Rank 0 submits one of them and joins; the others have joined before. On rank 0
 * the factor applies to its request, and not to the identity that replaces the other one. Both are ready
 * together, since the root waits for a cycle; the priority decides which is first. */
static void scale_one_of_two(struct member *member, const struct scaled *scaled)
{
    double data[2][2];
    bool product = scaled->reduction == HVD_PRODUCT;
    bool extreme = scaled->reduction == HVD_MIN || scaled->reduction == HVD_MAX;
    hvd_handle *both, *one = NULL;
    if (member->rank == 0) {
        both = submit_scaled(member, scaled, "both", data[0], rank_0_gives, scaled->priority);
        join(member);
        check_scaled(scaled, both, data[0], rank_0_gives, rank_1_gives, member->size);
    } else if (member->rank == 1) {
        one = submit_scaled(member, scaled, "one", data[1], alone, 0);
        both = submit_scaled(member, scaled, "both", data[0], rank_1_gives, scaled->priority);
        check_scaled(scaled, both, data[0], rank_0_gives, rank_1_gives, member->size);
        double other = extreme ? alone : product ? 1 / scaled->prescale : 0;
        check_scaled(scaled, one, data[1], alone, other, member->size);
        join(member);
    } else {
        join(member);
    }
}

static void scaled_beside_joined(struct member *member)
{
    for (int type = 0; dtype_known(type); type++) {
        for (int reduction = HVD_AVERAGE; reduction <= HVD_PRODUCT; reduction++) {
            if (reduction == HVD_ADASUM ||
                types_check_reduction(HVD_ALLREDUCE, (hvd_dtype)type, (hvd_reduction)reduction,
                                      (double[]){2, 1}, NULL))
                continue;
            for (int priority = -1; priority <= 1; priority += 2)
                scale_one_of_two(member, &(struct scaled){(hvd_dtype)type, (hvd_reduction)reduction,
                                                          priority < 0 ? 0.5 : 2, priority});
        }
    }
}

/* Only allreduce and barrier run without the joined. */
static void refused(struct member *member)
{
    hvd_status status;
    int64_t shape[] = {2};
    float data[2] = {1, 2};
    hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, shape, 1), outputs[2];
    for (int i = 0; member->rank && i < OPERATION_NUMBERS; i++) {
        if (!operation_known(i) || operation_table[i].absence != ABSENCE_join_all)
            continue;
        hvd_request request = request_of((hvd_operation)i, "x", &tensor);
        request.splits = operation_takes(request.operation, ARGUMENT_splits) ? (int64_t[]){1, 1, 0} : NULL;
        hvd_code code = hvd_run(member->context, &request, outputs, &status);
        CHECK(code == HVD_MISMATCH && strstr(status.text, "rank 0 did so") &&
                  strstr(status.text, "HOROVOD_JOIN=all"),
              "%s: %s", hvd_code_name(code), status.text);
    }
    join(member);
    check_allreduce_works(member, "after");
}

/* With HOROVOD_JOIN=all the others run, too: the joined have no rows, and their blocks are thrown away. */
static void all_run(struct member *member)
{
    hvd_status status;
    if (member->rank == 1) {
        join(member);
        return;
    }
    int64_t shape[] = {3};
    int32_t data[3] = {member->rank, 10 + member->rank, 20 + member->rank};
    hvd_tensor tensor = tensor_of(data, HVD_INT32, shape, 1), outputs[2];
    hvd_request request = request_of(HVD_ALLGATHER, "x", &tensor);
    CHECK_OK(hvd_run(member->context, &request, outputs, &check_status));
    CHECK(outputs[0].shape[0] == 6 && ((int32_t *)outputs[0].data)[3] == 2, "allgather");
    hvd_free(outputs[0].data);
    request = request_of(HVD_REDUCESCATTER, "x", &tensor);
    request.reduction = HVD_SUM;
    CHECK_OK(hvd_run(member->context, &request, outputs, &check_status));
    CHECK(outputs[0].shape[0] == 1 && *(int32_t *)outputs[0].data == (member->rank ? 42 : 2),
          "reducescatter");
    hvd_free(outputs[0].data);
    request = request_of(HVD_ALLTOALL, "x", &tensor);
    CHECK_OK(hvd_run(member->context, &request, outputs, &check_status));
    CHECK(outputs[0].shape[0] == 2 && ((int64_t *)outputs[1].data)[1] == 0, "alltoall");
    hvd_free(outputs[0].data);
    hvd_free(outputs[1].data);
    request = request_of(HVD_BROADCAST, "x", &tensor);
    request.root = 2;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    CHECK(data[0] == 2, "broadcast");
    request.root = 1;
    hvd_code code = hvd_run(member->context, &request, NULL, &status);
    CHECK(code == HVD_MISMATCH && strstr(status.text, "root"), "%s", status.text);
    join(member);
}

static void mismatch_meanwhile(struct member *member)
{
    hvd_status status;
    if (member->rank) {
        int64_t shape[] = {member->rank};
        float data[8] = {0};
        hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, shape, 1);
        hvd_request request = request_of(HVD_ALLREDUCE, "x", &tensor);
        hvd_code code = hvd_run(member->context, &request, NULL, &status);
        CHECK(code == HVD_MISMATCH && strstr(status.text, "rank 1 has [1]"), "%s", status.text);
    }
    join(member);
    check_allreduce_works(member, "after");
}

static void own_mistakes(struct member *member)
{
    static atomic_bool tried; /* the others must not join before */
    hvd_status status;
    hvd_request request = {.struct_size = sizeof request, .operation = HVD_JOIN};
    hvd_handle *handle;
    double value = 1;
    int32_t last;
    if (member->rank == 0) {
        CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
        hvd_code code = reduce_as(member, HVD_SUM, "x", &value, &status);
        CHECK(code == HVD_INVALID_ARGUMENT && strstr(status.text, "has joined"), "%s", status.text);
        CHECK(hvd_joined_last(handle, &last, &status) == HVD_IN_PROGRESS, "%s", status.text);
        atomic_store(&tried, true);
    }
    if (member->rank == 0) {
        finish(handle);
        atomic_store(&tried, false);
    } else {
        CHECK_OK(reduce_as(member, HVD_SUM, "y", &value, &check_status));
        while (!atomic_load(&tried))
            sched_yield();
        join(member);
    }
}

/* Who leaves while the others have joined ends their join. */
static void leave_meanwhile(struct member *member)
{
    hvd_status status;
    hvd_request request = {.struct_size = sizeof request, .operation = HVD_JOIN};
    if (member->rank == 1)
        return;
    hvd_code code = hvd_run(member->context, &request, NULL, &status);
    CHECK(code == HVD_SHUT_DOWN && strstr(status.text, "rank 1"), "%s", status.text);
}

static void with_sets(struct member *member)
{
    int32_t id;
    CHECK_OK(hvd_process_set_add(member->context, (int32_t[]){1, 3}, 2, &id, &check_status));
    double value = 1;
    if (member->rank % 2) {
        hvd_tensor tensor = tensor_of(&value, HVD_FLOAT64, NULL, 0);
        hvd_request request = request_of(HVD_ALLREDUCE, "x", &tensor);
        request.process_set = id;
        if (member->rank == 3) {
            CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
            CHECK(value == 1, "the joined rank gave %g", value - 1);
        }
        request = (hvd_request){.struct_size = sizeof request, .operation = HVD_JOIN, .process_set = id};
        hvd_handle *handle;
        int32_t last = -1;
        CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
        CHECK_OK(hvd_wait(handle, 30, &check_status));
        CHECK_OK(hvd_joined_last(handle, &last, &check_status));
        CHECK(last == 3, "the last is rank %d of the job", last);
        hvd_release(handle);
    }
    check_allreduce_works(member, "end");
}

static const char *const uneven[] = {"a", "a", "b", "b", "b", "c"};
static const char *const interleaved[] = {"a", "b", "b", "a", "c", "b"};

GROUP_TEST(test_uneven_work, uneven_work, 4, 4, EVERY_TRANSPORT)
GROUP_TEST(test_uneven_work_on_a_tree, uneven_work, 6, 6, .transport = "auto", .hosts = uneven,
           SETTINGS("tree_fanout", "2"))
GROUP_TEST(test_refused, refused, 3, 3, EVERY_TRANSPORT)
GROUP_TEST(test_all_run, all_run, 3, 3, SETTINGS("join", "all"))
GROUP_TEST(test_mismatch_meanwhile, mismatch_meanwhile, 3, 3, EVERY_TRANSPORT)
GROUP_TEST(test_own_mistakes, own_mistakes, 3, 3, EVERY_TRANSPORT)
GROUP_TEST(test_leave_meanwhile, leave_meanwhile, 3, 3, EVERY_TRANSPORT)
GROUP_TEST(test_with_sets, with_sets, 4, 4, EVERY_TRANSPORT)
GROUP_TEST(test_scaled_beside_joined, scaled_beside_joined, 2, 4, .transport = "shm",
           SETTINGS("cycle_time_ms", "2"))
GROUP_TEST(test_scaled_beside_joined_on_a_tree, scaled_beside_joined, 6, 6, .transport = "auto",
           .hosts = interleaved, SETTINGS("cycle_time_ms", "2", "tree_fanout", "2"))
