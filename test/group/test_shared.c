/* test_shared.c - tensors in memory that peers read in place: algorithms x sizes x ranks, beside tensors in
 * plain memory. Each tensor is overwritten as soon as an operation has ended, so a peer that still reads it
 * gets another result. */
#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 2, TENSORS = 24 };

/* Sizes below and above the limit of lending; odd, so that the ranks' blocks start anywhere; in many pieces.
 */
static const size_t counts[] = {5000, 300007, 1200011};
enum { COUNTS = sizeof counts / sizeof *counts };

/* Which ranks' tensors are shared. */
static bool is_shared(int rank, int pattern)
{
    return pattern == 0 || (pattern == 1 && rank % 2 == 0);
}

static float *get_memory(size_t count, bool shared)
{
    void *memory = NULL;
    if (shared)
        CHECK_OK(hvd_shared_alloc(count * sizeof(float), &memory, &check_status));
    else
        CHECK(memory = calloc(count, sizeof(float)), "out of memory");
    return memory;
}

static void release_memory(float *memory, bool shared)
{
    if (shared)
        hvd_shared_free(memory);
    else
        free(memory);
}

static float value_of(int rank, int round, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 3 + (size_t)round) % 17);
}

/* Values repeat every 17 elements, which no piece that moves at once is a multiple of: tensors are filled and
 * compared block by block, since a sanitizer looks at a block once and at elements one by one. */
enum { BLOCK = 17 * 241 };

static void make_block(float *block, int first, int last, int round)
{
    for (size_t i = 0; i < BLOCK; i++) {
        block[i] = 0;
        for (int rank = first; rank <= last; rank++)
            block[i] += value_of(rank, round, i);
    }
}

static void fill(const struct member *member, float *data, size_t count, int round)
{
    float block[BLOCK];
    make_block(block, member->rank, member->rank, round);
    for (size_t at = 0; at < count; at += BLOCK)
        memcpy(data + at, block, (count - at < BLOCK ? count - at : BLOCK) * sizeof *data);
}

/* The sum of the ranks' values. */
static void check_sum(const float *data, size_t count, int first, int last, int round)
{
    float block[BLOCK];
    make_block(block, first, last, round);
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t length = count - at < BLOCK ? count - at : BLOCK;
        if (memcmp(data + at, block, length * sizeof *data) == 0)
            continue;
        for (size_t i = 0; i < length; i++)
            CHECK(data[at + i] == block[i], "round %d, element %zu of %zu: %g, not %g", round, at + i, count,
                  data[at + i], block[i]);
    }
}

static void allreduce_case(struct member *member, size_t count, int pattern, bool in_place)
{
    bool shared = is_shared(member->rank, pattern);
    int64_t shape[] = {(int64_t)count};
    float *input = get_memory(count, shared), *output = in_place ? input : get_memory(count, shared);
    hvd_tensor in = tensor_of(input, HVD_FLOAT32, shape, 1), out = tensor_of(output, HVD_FLOAT32, shape, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, "allreduce", &in);
    request.outputs = in_place ? NULL : &out;
    for (int round = 0; round < ROUNDS; round++) {
        fill(member, input, count, round);
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
        if (!in_place)
            memset(input, 0xff, count * sizeof *input);
        check_sum(output, count, 0, member->size - 1, round);
    }
    if (!in_place)
        release_memory(output, shared);
    release_memory(input, shared);
}

/* Every pair of count, pattern and place. */
static void allreduce_product(struct member *member)
{
    for (int c = 0; c < COUNTS; c++)
        for (int pattern = 0; pattern < 2; pattern++)
            for (int in_place = 0; in_place < 2; in_place++)
                if (test_full() || (c + pattern + in_place) % 2 == 0)
                    allreduce_case(member, counts[c], pattern, in_place);
}

/* One batch of both kinds of memory, tiny tensors between long ones. */
static void mixed_batch(struct member *member)
{
    hvd_tensor tensors[TENSORS];
    int64_t shapes[TENSORS][1];
    float *plain = get_memory(TENSORS * 40000, false), *shared = get_memory(TENSORS * 40000, true);
    for (int t = 0; t < TENSORS; t++) {
        shapes[t][0] = t % 4 == 3 ? t : 30001 + t;
        tensors[t] =
            tensor_of(((t + member->rank) % 3 ? shared : plain) + 40000 * t, HVD_FLOAT32, shapes[t], 1);
    }
    hvd_request request = request_of(HVD_ALLREDUCE, "batch", tensors);
    request.count = TENSORS;
    request.grouped = 1;
    for (int round = 0; round < ROUNDS; round++) {
        for (int t = 0; t < TENSORS; t++)
            fill(member, tensors[t].data, (size_t)shapes[t][0], round);
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
        for (int t = 0; t < TENSORS; t++)
            check_sum(tensors[t].data, (size_t)shapes[t][0], 0, member->size - 1, round);
    }
    free(plain);
    hvd_shared_free(shared);
}

static void broadcast(struct member *member)
{
    const size_t count = 700001;
    int64_t shape[] = {(int64_t)count};
    float *data = get_memory(count, true);
    hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, shape, 1);
    for (int root = 0; root < member->size; root++) {
        hvd_request request = request_of(HVD_BROADCAST, "broadcast", &tensor);
        request.root = root;
        fill(member, data, count, root);
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
        check_sum(data, count, root, root, root);
    }
    hvd_shared_free(data);
}

/* An input that peers read in place; the result is the engine's. */
static void allgather(struct member *member)
{
    const size_t count = 400003;
    int64_t shape[] = {(int64_t)count};
    float *data = get_memory(count, true);
    hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, shape, 1), out;
    for (int round = 0; round < ROUNDS; round++) {
        hvd_request request = request_of(HVD_ALLGATHER, "allgather", &tensor);
        fill(member, data, count, round);
        CHECK_OK(hvd_run(member->context, &request, &out, &check_status));
        memset(data, 0xff, count * sizeof *data);
        const float *got = out.data;
        for (int rank = 0; rank < member->size; rank++)
            check_sum(got + (size_t)rank * count, count, rank, rank, round);
        hvd_free(out.data);
    }
    hvd_shared_free(data);
}

static void everything(struct member *member)
{
    allreduce_product(member);
    mixed_batch(member);
    broadcast(member);
    allgather(member);
}

GROUP_TEST(test_rings, everything, 1, 5, .transport = "shm")
/* 3 and 4: with and without ranks beside the doubling ones. */
GROUP_TEST(test_doubling, everything, test_full() ? 2 : 3, test_full() ? 5 : 4, .transport = "shm",
           SETTINGS("allreduce_algorithm", "doubling"))
GROUP_TEST(test_narrow_rings, everything, 3, 3, .transport = "shm", SETTINGS("shm_ring_bytes", "16384"))
/* Every tensor, shared or not, by one path. */
GROUP_TEST(test_direct_reads, everything, 2, 3, .transport = "shm", SETTINGS("shm_path", "direct"))
GROUP_TEST(test_direct_reads_of_doubling, everything, 3, 3, .transport = "shm",
           SETTINGS("shm_path", "direct", "allreduce_algorithm", "doubling"))
GROUP_TEST(test_nontemporal_stores, everything, 3, 3, .transport = "shm", SETTINGS("shm_path", "nontemporal"))
GROUP_TEST(test_ring_alone, everything, 3, 3, .transport = "shm", SETTINGS("shm_path", "ring"))
/* Memory that can't be seen from elsewhere is sent. */
GROUP_TEST(test_tcp, everything, 3, 3, .transport = "tcp")
