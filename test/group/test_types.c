/* test_types.c - groups of several element types: one request, which ends once. */
#include "values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 5, MOST_ELEMENTS = 9001 };

/* Tensors of two types in turn, some of them without elements. */
struct mixed {
    hvd_operation operation;
    hvd_reduction reduction;
    hvd_dtype types[2];
    bool given; /* the outputs are the caller's, and other memory than the inputs */
    int64_t rows[TENSORS];
};

static size_t elements_of(const struct mixed *mixed, int t)
{
    return (size_t)mixed->rows[t];
}

static void check_mixed(struct member *member, const struct mixed *mixed, const char *name,
                        const hvd_tensor *results)
{
    for (int t = 0; t < TENSORS; t++) {
        size_t first = 0, count = elements_of(mixed, t), size = (size_t)member->size;
        if (mixed->operation == HVD_REDUCESCATTER) {
            size_t rank = (size_t)member->rank, more = count % size;
            first = rank * (count / size) + (rank < more ? rank : more);
            count = count / size + (rank < more);
            CHECK(results[t].shape[0] == (int64_t)count, "%s: tensor %d has %d rows", name, t,
                  (int)results[t].shape[0]);
        }
        for (size_t i = 0; i < count; i++)
            check_value(results[t].dtype, results[t].data, i,
                        expected_at(results[t].dtype, mixed->reduction, member->size, first + i), name);
    }
}

static void run_mixed(struct member *member, const struct mixed *mixed)
{
    char name[96], *memory[2 * TENSORS];
    int64_t result_rows[TENSORS];
    hvd_tensor inputs[TENSORS], outputs[TENSORS];
    snprintf(name, sizeof name, "%s %s of %s and %s", hvd_operation_name(mixed->operation),
             reduction_name(mixed->reduction), hvd_dtype_name(mixed->types[0]),
             hvd_dtype_name(mixed->types[1]));
    for (int t = 0; t < TENSORS; t++) {
        hvd_dtype type = mixed->types[t % 2];
        size_t bytes = elements_of(mixed, t) * hvd_dtype_size(type) + 1;
        memory[t] = malloc(bytes);
        memory[TENSORS + t] = malloc(bytes);
        for (size_t i = 0; i < elements_of(mixed, t); i++)
            put_at(type, memory[t], i, value_at(type, mixed->reduction, member->rank, i));
        result_rows[t] = mixed->rows[t];
        if (mixed->operation == HVD_REDUCESCATTER)
            result_rows[t] = mixed->rows[t] / member->size + (member->rank < mixed->rows[t] % member->size);
        inputs[t] = tensor_of(memory[t], type, &mixed->rows[t], 1);
        outputs[t] = tensor_of(memory[TENSORS + t], type, &result_rows[t], 1);
    }
    hvd_request request = request_of(mixed->operation, name, inputs);
    request.reduction = mixed->reduction;
    request.count = TENSORS;
    request.grouped = 1;
    request.outputs = mixed->given ? outputs : NULL;
    bool allocates = !mixed->given && operation_makes_results(mixed->operation);
    CHECK_OK(hvd_run(member->context, &request, outputs, &check_status));
    check_mixed(member, mixed, name, mixed->given || allocates ? outputs : inputs);
    for (int t = 0; allocates && t < TENSORS; t++)
        hvd_free(outputs[t].data);
    for (int t = 0; t < 2 * TENSORS; t++)
        free(memory[t]);
}

/* Every pair of types; short and long, in place and not. */
static void pairs(struct member *member)
{
    static const hvd_operation operations[] = {HVD_ALLREDUCE, HVD_REDUCESCATTER};
    for (int a = 0; a < DTYPES; a++) {
        for (int b = 0; b < DTYPES; b++) {
            struct mixed mixed = {.operation = operations[(a + b) % 2],
                                  .reduction = HVD_SUM,
                                  .types = {dtypes[a], dtypes[b]},
                                  .given = a % 2,
                                  .rows = {3, 1, 0, 7, (a + b) % 5 ? 40 : MOST_ELEMENTS}};
            run_mixed(member, &mixed);
        }
    }
    struct mixed averages = {HVD_ALLREDUCE, HVD_AVERAGE, {HVD_FLOAT32, HVD_INT64}, false, {9, 9, 9, 9, 9}};
    run_mixed(member, &averages);
}

/* All types at once, fifteen collectives, many times under one name. */
static void all_types(struct member *member)
{
    double data[DTYPES][2];
    int64_t one = 1;
    hvd_tensor tensors[DTYPES];
    for (int round = 0; round < 20; round++) {
        for (int t = 0; t < DTYPES; t++) {
            put_at(dtypes[t], data[t], 0, value_at(dtypes[t], HVD_SUM, member->rank, (size_t)round));
            tensors[t] = tensor_of(data[t], dtypes[t], &one, 1);
        }
        hvd_request request = request_of(HVD_ALLREDUCE, "all types", tensors);
        request.count = DTYPES;
        request.grouped = 1;
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
        for (int t = 0; t < DTYPES; t++)
            check_value(dtypes[t], data[t], 0, expected_at(dtypes[t], HVD_SUM, member->size, (size_t)round),
                        "all types");
    }
}

/* Sums of integers do, whoever adds: vectors are long enough for any instruction set. */
static void wraps_around(struct member *member)
{
    for (int t = 0; t < DTYPES; t++) {
        uint8_t data[8 * 100];
        int64_t elements = 100;
        size_t size = hvd_dtype_size(dtypes[t]);
        if (dtype_table[dtypes[t]].family != FAMILY_integer)
            continue;
        memset(data, 0x7f, sizeof data); /* near the greatest of the signed types */
        hvd_tensor tensor = tensor_of(data, dtypes[t], &elements, 1);
        hvd_request request = request_of(HVD_ALLREDUCE, "wraps", &tensor);
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
        uint64_t should = UINT64_C(0x7f7f7f7f7f7f7f7f) * (uint64_t)member->size;
        for (size_t i = 0; i < 100; i++)
            CHECK(memcmp(data + i * size, &should, size) == 0, "%s: element %zu is %g",
                  hvd_dtype_name(dtypes[t]), i, number_get(dtypes[t], data + i * size));
    }
}

/* Any byte but 0 is a true bool; results hold 0 and 1. */
static void run_bytes_of_bool(struct member *member, hvd_reduction reduction, bool in_place)
{
    uint8_t given[] = {0, 1, 2, 128, 255, 0}, got[6];
    int64_t elements = 6;
    hvd_tensor input = tensor_of(given, HVD_BOOL, &elements, 1);
    hvd_tensor output = tensor_of(got, HVD_BOOL, &elements, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, "bytes", &input);
    request.reduction = reduction;
    request.outputs = in_place ? NULL : &output;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    const uint8_t *result = in_place ? given : got;
    for (int i = 0; i < 6; i++)
        CHECK(result[i] == (i > 0 && i < 5), "%s: element %d is %d", reduction_name(reduction), i, result[i]);
}

/* On one rank, too. */
static void bytes_of_bool(struct member *member)
{
    static const hvd_reduction logical[] = {HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT};
    for (int i = 0; i < 8; i++)
        run_bytes_of_bool(member, logical[i % 4], i / 4);
}

/* And where the others have joined. */
static void bytes_of_bool_alone(struct member *member)
{
    hvd_request join = {.struct_size = sizeof join, .operation = HVD_JOIN};
    if (!member->rank)
        bytes_of_bool(member);
    CHECK_OK(hvd_run(member->context, &join, NULL, &check_status));
}

/* A float32 and an int32 tensor; as a group, or the same memory twice. */
struct two {
    float real[2];
    int32_t whole[2];
    int64_t shape[1];
    hvd_tensor tensors[4];
};

static hvd_request request_of_two(struct two *two, const char *name, int value)
{
    two->real[0] = two->real[1] = (float)value;
    two->whole[0] = two->whole[1] = value;
    two->shape[0] = 2;
    for (int t = 0; t < 4; t++)
        two->tensors[t] = t % 2 ? tensor_of(two->whole, HVD_INT32, two->shape, 1)
                                : tensor_of(two->real, HVD_FLOAT32, two->shape, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, name, two->tensors);
    request.count = 2;
    request.grouped = 1;
    return request;
}

/* One tensor's shape differs by rank: none of the types runs. */
static void whole_or_not_at_all(struct member *member)
{
    for (int t = 0; t < 2; t++) {
        struct two two;
        int64_t one = 1;
        hvd_status status;
        hvd_request request = request_of_two(&two, "differs", member->rank + 1);
        if (!member->rank)
            two.tensors[t].shape = &one;
        hvd_code code = hvd_run(member->context, &request, NULL, &status);
        CHECK(code == HVD_MISMATCH && strstr(status.text, "the shape of tensor"), "%s", status.text);
        CHECK(two.real[0] == (float)(member->rank + 1) && two.whole[0] == member->rank + 1, "it ran");
        if (!member->rank)
            two.tensors[t].dtype = t ? HVD_FLOAT32 : HVD_INT32;
        code = hvd_run(member->context, &request, NULL, &status);
        CHECK(code == HVD_MISMATCH && strstr(status.text, "the type of tensor"), "%s", status.text);
    }
    check_allreduce_works(member, "the job goes on");
}

/* Every type for itself: what one of them can't do is named. */
static void refused(struct member *member)
{
    struct two two;
    bool flags[2] = {false, true};
    hvd_status status;
    hvd_request request = request_of_two(&two, "refused", 1);
    two.tensors[1] = tensor_of(flags, HVD_BOOL, two.shape, 1);
    request.reduction = HVD_AVERAGE;
    hvd_code code = hvd_run(member->context, &request, NULL, &status);
    CHECK(code == HVD_INVALID_ARGUMENT && strstr(status.text, "there is no average of bool"), "%s",
          status.text);
}

/* Members that share memory run one after the other, whatever their types. */
static void shared_memory(struct member *member)
{
    struct two two;
    hvd_request request = request_of_two(&two, "shared", member->rank + 1);
    request.count = 4;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    int sum = sum_of(member) * member->size;
    CHECK(two.real[1] == (float)sum && two.whole[1] == sum, "%g and %d, not %d", two.real[1],
          (int)two.whole[1], sum);
}

static hvd_counters count_allreduces(const struct member *member)
{
    hvd_counters rows[8], none = {0};
    int count = hvd_get_counters(member->context, rows, 8);
    for (int i = 0; i < count; i++)
        if (rows[i].operation == HVD_ALLREDUCE)
            return rows[i];
    return none;
}

/* Many in flight, beside requests of one type that fuse; counted as one batch each. */
static void many_at_once(struct member *member)
{
    enum { MANY = 30 };
    struct two two[MANY];
    float single[MANY];
    hvd_handle *handles[2 * MANY];
    hvd_counters before = count_allreduces(member);
    for (int i = 0; i < MANY; i++) {
        char name[32];
        snprintf(name, sizeof name, "two %d", i);
        hvd_request request = request_of_two(&two[i], name, i);
        CHECK_OK(hvd_submit(member->context, &request, &handles[2 * i], &check_status));
        single[i] = (float)i;
        snprintf(name, sizeof name, "one %d", i);
        handles[2 * i + 1] = submit_sum(member, name, &single[i], 1, 0);
    }
    for (int i = 0; i < 2 * MANY; i++)
        finish(handles[i]);
    for (int i = 0; i < MANY; i++)
        CHECK(two[i].real[1] == (float)(i * member->size) && two[i].whole[0] == i * member->size &&
                  single[i] == (float)(i * member->size),
              "operation %d of many", i);
    hvd_counters after = count_allreduces(member);
    int batches = (int)(after.batches - before.batches), bytes = (int)(after.bytes - before.bytes);
    CHECK(batches > MANY && batches <= 2 * MANY, "%d batches", batches);
    CHECK(bytes == MANY * (16 + 4), "%d bytes", bytes);
}

/* A rank that has joined takes part in every type. */
static void with_a_joined_rank(struct member *member)
{
    hvd_request join = {.struct_size = sizeof join, .operation = HVD_JOIN};
    if (member->rank) {
        struct two two;
        hvd_request request = request_of_two(&two, "of those left", member->rank);
        request.prescale = &(double){2};
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
        int sum = 2 * (sum_of(member) - member->size);
        CHECK(two.real[0] == (float)sum && two.whole[0] == sum, "%g and %d, not %d", two.real[0],
              (int)two.whole[0], sum);
    }
    CHECK_OK(hvd_run(member->context, &join, NULL, &check_status));
}

static void all_cases(struct member *member)
{
    many_at_once(member);
    pairs(member);
    all_types(member);
    whole_or_not_at_all(member);
    refused(member);
    shared_memory(member);
}

GROUP_TEST(over_each_transport, all_cases, 2, 3, EVERY_TRANSPORT)
GROUP_TEST(over_hosts, all_cases, 4, 4, .transport = "auto",
           .hosts = (const char *const[]){"a", "b", "b", "a"})
GROUP_TEST(over_tcp_no_cache, all_cases, 2, 2, .transport = "tcp", SETTINGS("cache_capacity", "0"))
GROUP_TEST(over_faulty_shm, all_cases, 3, 3, .transport = "faulty-shm")
GROUP_TEST(alone, pairs, 1, 1, .transport = "shm")
GROUP_TEST(test_with_a_joined_rank, with_a_joined_rank, 2, 3, EVERY_TRANSPORT)
GROUP_TEST(test_bytes_of_bool, bytes_of_bool, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_bytes_of_bool_alone, bytes_of_bool_alone, 2, 3, EVERY_TRANSPORT)
GROUP_TEST(test_bytes_of_bool_alone_between_hosts, bytes_of_bool_alone, 2, 2, .transport = "auto",
           .hosts = (const char *const[]){"a", "b"})
GROUP_TEST(test_wraps_around, wraps_around, 1, 4, .transport = "shm")
