/* test_counters.c - hvd_get_counters: per process set and operation, always on. */
#include "base/clock.h"
#include "group.h"

enum { ROWS = 32, ROUNDS = 10 };

static hvd_counters counters_for(struct member *member, int process_set, hvd_operation operation)
{
    hvd_counters rows[ROWS];
    int32_t count = hvd_get_counters(member->context, rows, ROWS);
    CHECK(count <= ROWS, "%d rows", (int)count);
    for (int32_t i = 0; i < count; i++) {
        if (rows[i].process_set == process_set && rows[i].operation == operation)
            return rows[i];
    }
    return (hvd_counters){0};
}

static void reduce(struct member *member, const char *name, int process_set, int64_t elements)
{
    float data[100] = {0};
    hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, &elements, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
    request.process_set = process_set;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
}

static void counts_operations(struct member *member)
{
    for (int round = 0; round < ROUNDS; round++)
        reduce(member, "x", 0, 100);
    hvd_counters counted = counters_for(member, 0, HVD_ALLREDUCE);
    CHECK(counted.submitted == ROUNDS && counted.succeeded == ROUNDS && !counted.failed, "%llu submitted",
          (unsigned long long)counted.submitted);
    CHECK(counted.bytes == ROUNDS * 100 * sizeof(float) && counted.batches == ROUNDS,
          "%llu bytes, %llu batches", (unsigned long long)counted.bytes, (unsigned long long)counted.batches);
    CHECK(!counters_for(member, 0, HVD_BROADCAST).submitted, "a broadcast that never was");
}

/* A wait that times out is counted as well, even before the progress thread has received the request. */
static void counts_waits_that_run_out(struct member *member)
{
    hvd_handle *handle = NULL;
    hvd_request request = request_of(HVD_BARRIER, "early", NULL);
    request.count = 0;
    if (member->rank == 0) {
        CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
        int64_t start = clock_now();
        CHECK(hvd_wait(handle, 0.02, NULL) == HVD_IN_PROGRESS, "a barrier of rank 0 alone is over");
        double elapsed = (double)(clock_now() - start) / CLOCK_SECOND;
        double counted = counters_for(member, 0, HVD_BARRIER).wait_seconds;
        CHECK(counted >= 0.02 && counted <= elapsed, "%g of %g s", counted, elapsed);
    }
    reduce(member, "all", 0, 1);
    if (member->rank != 0)
        CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
    finish(handle);
}

/* Each rank submits another shape. */
static void counts_failures(struct member *member)
{
    float data[16] = {0};
    int64_t elements = member->rank + 1;
    hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, &elements, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, "differs", &tensor);
    hvd_status status;
    CHECK(hvd_run(member->context, &request, NULL, &status) == HVD_MISMATCH, "%s", status.text);
    hvd_counters counted = counters_for(member, 0, HVD_ALLREDUCE);
    CHECK(counted.failed == 1 && !counted.succeeded && !counted.batches, "%llu failed",
          (unsigned long long)counted.failed);
}

static void counts_process_sets(struct member *member)
{
    int32_t ranks[] = {0, 1}, id;
    CHECK_OK(hvd_process_set_add(member->context, ranks, 2, &id, &check_status));
    if (member->rank < 2)
        reduce(member, "x", id, 7);
    CHECK_OK(hvd_process_set_remove(member->context, id, &check_status));
    hvd_counters counted = counters_for(member, id, HVD_ALLREDUCE);
    CHECK(counted.succeeded == (member->rank < 2) && counted.bytes == (member->rank < 2) * 7 * sizeof(float),
          "%llu, %llu bytes", (unsigned long long)counted.succeeded, (unsigned long long)counted.bytes);
    /* Making the set is an operation of the world. */
    CHECK(counters_for(member, 0, HVD_ADD_PROCESS_SET).succeeded == 1, "not counted");
}

GROUP_TEST(test_counts_operations, counts_operations, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_counts_waits_that_run_out, counts_waits_that_run_out, 2, 3, EVERY_TRANSPORT)
GROUP_TEST(test_counts_failures, counts_failures, 2, 3, EVERY_TRANSPORT)
GROUP_TEST(test_counts_process_sets, counts_process_sets, 2, 3, EVERY_TRANSPORT)
