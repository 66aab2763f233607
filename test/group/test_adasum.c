/* test_adasum.c - Adasum over real links: of equal gradients the same ones, of orthogonal ones the sum;
 * single, grouped, many at once, in a process set. The formula itself is tested in test/unit/test_adasum.c.
 */
#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Odd tensors are equal on all ranks, of even ones each rank has every size-th number. */
static float value_at(int tensor, int rank, int size, size_t i)
{
    float value = (float)(i % 7) - 2 + (float)tensor;
    return tensor % 2 || i % (size_t)size == (size_t)rank ? value : 0;
}

static void fill(float *data, size_t count, int tensor, int rank, int size)
{
    for (size_t i = 0; i < count; i++)
        data[i] = value_at(tensor, rank, size, i);
}

static void check(const float *data, size_t count, int tensor, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        float should = (float)(i % 7) - 2 + (float)tensor;
        CHECK(data[i] == should, "%s: element %zu of %zu of tensor %d is %g, not %g", name, i, count, tensor,
              (double)data[i], (double)should);
    }
}

static hvd_request adasum_of(const char *name, const hvd_tensor *tensors, int count)
{
    hvd_request request = request_of(HVD_ALLREDUCE, name, tensors);
    request.reduction = HVD_ADASUM;
    request.count = count;
    request.grouped = count > 1;
    return request;
}

static void single_case(struct member *member, int tensor, size_t count, bool in_place)
{
    char name[64];
    int64_t shape[] = {(int64_t)count};
    float *input = malloc(count * sizeof *input + 1), *output = malloc(count * sizeof *output + 1);
    fill(input, count, tensor, member->rank, member->size);
    hvd_tensor in = tensor_of(input, HVD_FLOAT32, shape, 1), out = tensor_of(output, HVD_FLOAT32, shape, 1);
    snprintf(name, sizeof name, "adasum %d x%zu%s of %d", tensor, count, in_place ? " in place" : "",
             member->size);
    hvd_request request = adasum_of(name, &in, 1);
    request.outputs = in_place ? NULL : &out;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    check(in_place ? input : output, count, tensor, name);
    free(input);
    free(output);
}

static void singles(struct member *member)
{
    static const size_t counts[] = {0, 1, 9, 1000, 150001};
    for (int c = 0; c < 5; c++)
        for (int tensor = 0; tensor < 2; tensor++)
            single_case(member, tensor, counts[c], (c + tensor) % 2);
}

enum { TENSORS = 9, LONGEST = 700 };

static void tensors_make(const struct member *member, float data[TENSORS][LONGEST], hvd_tensor *tensors,
                         int64_t *lengths)
{
    for (int t = 0; t < TENSORS; t++) {
        lengths[t] = t * t * 10 % (LONGEST + 1);
        fill(data[t], (size_t)lengths[t], t, member->rank, member->size);
        tensors[t] = tensor_of(data[t], HVD_FLOAT32, &lengths[t], 1);
    }
}

static void group(struct member *member, int32_t set, const struct member *in_set)
{
    float data[TENSORS][LONGEST];
    hvd_tensor tensors[TENSORS];
    int64_t lengths[TENSORS];
    tensors_make(in_set, data, tensors, lengths);
    hvd_request request = adasum_of("group", tensors, TENSORS);
    request.process_set = set;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    for (int t = 0; t < TENSORS; t++)
        check(data[t], (size_t)lengths[t], t, "group");
}

/* Each rank submits them one by one, in its own order, mixed with plain sums; the root decides which run as
 * one batch. */
static void many_at_once(struct member *member)
{
    float data[TENSORS][LONGEST], sums[TENSORS];
    hvd_tensor tensors[TENSORS];
    int64_t lengths[TENSORS];
    hvd_handle *handles[TENSORS], *others[TENSORS];
    tensors_make(member, data, tensors, lengths);
    for (int i = 0; i < TENSORS; i++) {
        int t = (i + member->rank) % TENSORS;
        char name[16];
        sums[t] = (float)(member->rank + t);
        hvd_tensor sum = tensor_of(&sums[t], HVD_FLOAT32, NULL, 0);
        snprintf(name, sizeof name, "a%d", t);
        hvd_request request = adasum_of(name, &tensors[t], 1);
        CHECK_OK(hvd_submit(member->context, &request, &handles[t], &check_status));
        snprintf(name, sizeof name, "s%d", t);
        request = request_of(HVD_ALLREDUCE, name, &sum);
        CHECK_OK(hvd_submit(member->context, &request, &others[t], &check_status));
    }
    for (int t = 0; t < TENSORS; t++) {
        CHECK_OK(hvd_wait(handles[t], 60, &check_status));
        CHECK_OK(hvd_wait(others[t], 60, &check_status));
        check(data[t], (size_t)lengths[t], t, "many at once");
        CHECK(sums[t] == (float)(member->size * (member->size - 1) / 2 + member->size * t), "a sum is wrong");
        hvd_release(handles[t]);
        hvd_release(others[t]);
    }
}

/* All ranks but rank 0, renumbered. */
static void in_a_set(struct member *member)
{
    int32_t ranks[8], set;
    for (int i = 1; i < member->size; i++)
        ranks[i - 1] = i;
    if (member->size == 1)
        return;
    CHECK_OK(hvd_process_set_add(member->context, ranks, member->size - 1, &set, &check_status));
    struct member in_set = {.rank = member->rank - 1, .size = member->size - 1};
    if (member->rank > 0)
        group(member, set, &in_set);
    check_allreduce_works(member, "after the set");
}

static void all_cases(struct member *member)
{
    singles(member);
    group(member, 0, member);
    many_at_once(member);
    in_a_set(member);
}

GROUP_TEST(adasum_over_shm_with_tiny_buffers, all_cases, 1, MOST_RANKS, .transport = "shm",
           SETTINGS("shm_ring_bytes", "4096"))
GROUP_TEST(adasum_over_tcp, all_cases, 1, MOST_RANKS, .transport = "tcp",
           SETTINGS("allreduce_algorithm", "ring"))
