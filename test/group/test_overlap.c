/* test_overlap.c - requests in flight that use the same memory: what a rank gets is what it would get one by
 * one, in the order in which it submitted them, whatever the memory of the other ranks. */
#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 30, ELEMENTS = 100000 };

static hvd_handle *submit_sum(struct member *member, const char *name, float *data, int64_t elements, int set)
{
    hvd_handle *handle;
    hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, &elements, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
    request.process_set = set;
    CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
    return handle;
}

static void finish(hvd_handle *handle)
{
    CHECK_OK(hvd_wait(handle, 30, &check_status));
    hvd_release(handle);
}

/* Of the ranks' numbers from 1 on. */
static float sum_of(const struct member *member)
{
    return (float)(member->size * (member->size + 1) / 2);
}

static void same_memory(struct member *member)
{
    float sum = sum_of(member);
    for (int round = 0; round < ROUNDS; round++) {
        float value = (float)(member->rank + 1);
        hvd_handle *handles[3];
        for (int i = 0; i < 3; i++) {
            const char *const names[] = {"a", "b", NULL};
            handles[i] = submit_sum(member, names[i], &value, 1, 0);
        }
        for (int i = 0; i < 3; i++)
            finish(handles[i]);
        float expected = sum * (float)(member->size * member->size);
        CHECK(value == expected, "round %d: %g, not %g", round, value, expected);
    }
}

/* Only one rank shares, in another round another one; the others' requests are ready at once. */
static void one_rank_shares(struct member *member)
{
    float sum = sum_of(member);
    for (int round = 0; round < ROUNDS; round++) {
        int sharer = round % member->size;
        float values[2] = {(float)(member->rank + 1), (float)(member->rank + 1)};
        float *second = member->rank == sharer ? &values[0] : &values[1];
        hvd_handle *a = submit_sum(member, "a", &values[0], 1, 0);
        hvd_handle *b = submit_sum(member, "b", second, 1, 0);
        hvd_handle *unnamed = submit_sum(member, NULL, &(float){0}, 1, 0); /* not held back */
        finish(b);
        finish(a);
        finish(unnamed);
        float expected = sum + sum - (float)(sharer + 1);
        CHECK(*second == expected, "round %d: %g, not %g", round, *second, expected);
        CHECK(member->rank == sharer || values[0] == sum, "round %d: %g, not %g", round, values[0], sum);
    }
}

/* A part of what a long one writes, and what one part reads. */
static void parts(struct member *member)
{
    static _Thread_local float data[ELEMENTS], copy[ELEMENTS];
    float sum = sum_of(member), size = (float)member->size;
    for (int i = 0; i < ELEMENTS; i++)
        data[i] = (float)(member->rank + 1);
    hvd_handle *all = submit_sum(member, "all", data, ELEMENTS, 0);
    hvd_handle *part = submit_sum(member, "part", data + 1000, 10, 0);
    int64_t elements = ELEMENTS;
    hvd_tensor input = tensor_of(data, HVD_FLOAT32, &elements, 1);
    hvd_tensor output = tensor_of(copy, HVD_FLOAT32, &elements, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, "reader", &input);
    hvd_handle *reader;
    request.outputs = &output;
    CHECK_OK(hvd_submit(member->context, &request, &reader, &check_status));
    hvd_handle *beside = submit_sum(member, "beside", data + 1010, 10, 0);
    finish(all);
    finish(part);
    finish(reader);
    finish(beside);
    for (int i = 0; i < ELEMENTS; i++) {
        bool in_part = i >= 1000 && i < 1010, after = i >= 1010 && i < 1020;
        CHECK(copy[i] == (in_part ? sum * size * size : sum * size), "reader: element %d is %g", i, copy[i]);
        CHECK(data[i] == (in_part || after ? sum * size : sum), "element %d is %g", i, data[i]);
    }
}

static void in_two_sets(struct member *member)
{
    int32_t everybody[] = {0, 1, 2, 3}, id;
    float sum = sum_of(member);
    CHECK_OK(hvd_process_set_add(member->context, everybody, member->size, &id, &check_status));
    for (int round = 0; round < ROUNDS; round++) {
        float value = (float)(member->rank + 1);
        hvd_handle *a = submit_sum(member, "a", &value, 1, round % 2 ? id : 0);
        hvd_handle *b = submit_sum(member, "a", &value, 1, round % 2 ? 0 : id);
        finish(a);
        finish(b);
        CHECK(value == sum * (float)member->size, "round %d: %g", round, value);
    }
}

/* A join comes behind what is held back. */
static void joined_behind(struct member *member)
{
    float value = (float)(member->rank + 1);
    hvd_request join = {.struct_size = sizeof join, .operation = HVD_JOIN};
    for (int round = 0; round < ROUNDS; round++) {
        value = (float)(member->rank + 1);
        hvd_handle *a = submit_sum(member, "a", &value, 1, 0);
        hvd_handle *b = submit_sum(member, "b", &value, 1, 0);
        CHECK_OK(hvd_run(member->context, &join, NULL, &check_status));
        finish(a);
        finish(b);
        CHECK(value == sum_of(member) * (float)member->size, "round %d: %g", round, value);
    }
}

/* Readers do not wait for each other: rank 0 asks in another order than the rest. */
static void readers(struct member *member)
{
    float value = (float)member->rank;
    int64_t shape[] = {1};
    hvd_tensor tensor = tensor_of(&value, HVD_FLOAT32, shape, 1);
    hvd_handle *handles[20];
    for (int i = 0; i < 20; i++) {
        char name[16];
        int n = member->rank ? i : 19 - i;
        snprintf(name, sizeof name, "%d", n);
        hvd_request request = request_of(HVD_ALLGATHER, name, &tensor);
        CHECK_OK(hvd_submit(member->context, &request, &handles[i], &check_status));
    }
    for (int i = 0; i < 20; i++)
        finish(handles[i]);
}

/* What is held back ends with what it waits for. */
static void ended_by_leaving(struct member *member)
{
    static _Thread_local float value;
    hvd_handle *handles[4];
    for (int i = 0; !member->rank && i < 4; i++)
        handles[i] = submit_sum(member, (const char *[]){"a", "b", "c", NULL}[i], &value, 1, 0);
    check_allreduce_works(member, "nobody leaves before");
    for (int i = 3; !member->rank && i >= 0; i--) {
        hvd_status status;
        hvd_code code = hvd_wait(handles[i], 30, &status);
        CHECK(code == HVD_SHUT_DOWN, "%s: %s", hvd_code_name(code), status.text);
        hvd_release(handles[i]);
    }
}

static void ended_by_own_shutdown(struct member *member)
{
    static _Thread_local float value;
    hvd_handle *handles[3];
    for (int i = 0; !member->rank && i < 3; i++)
        handles[i] = submit_sum(member, (const char *[]){"a", "b", NULL}[i], &value, 1, 0);
    check_allreduce_works(member, "nobody leaves before");
    hvd_shutdown(member->context);
    member->context = NULL;
    for (int i = 0; !member->rank && i < 3; i++) {
        CHECK(hvd_test(handles[i], NULL) == HVD_SHUT_DOWN, "%d", i);
        hvd_release(handles[i]);
    }
}

GROUP_TEST(test_same_memory, same_memory, 1, 4, EVERY_TRANSPORT)
GROUP_TEST(test_one_rank_shares, one_rank_shares, 2, 4, EVERY_TRANSPORT)
GROUP_TEST(test_parts, parts, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_in_two_sets, in_two_sets, 1, 4, EVERY_TRANSPORT)
GROUP_TEST(test_joined_behind, joined_behind, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_readers, readers, 2, 3, EVERY_TRANSPORT)
GROUP_TEST(test_ended_by_leaving, ended_by_leaving, 2, 3, EVERY_TRANSPORT)
GROUP_TEST(test_ended_by_own_shutdown, ended_by_own_shutdown, 2, 3, EVERY_TRANSPORT)
