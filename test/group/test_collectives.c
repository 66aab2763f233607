/* test_collectives.c - allreduce, allgather, broadcast and barrier: type x reduction x size on every
 * transport and 1 to 8 ranks, against sums done by hand. Values are small integers, so that every type holds
 * them exactly and any order of summation gives the same. */
#include "values.h"

#include <stdio.h>
#include <stdlib.h>

/* 0, 1, odd, across the latency threshold, larger than a shared-memory ring. */
static const size_t counts[] = {0, 1, 7, 1000, 4099, 200003};
enum { COUNTS = sizeof counts / sizeof *counts };

static void allreduce_case(struct member *member, hvd_dtype type, hvd_reduction reduction, size_t count,
                           bool in_place)
{
    trial_run(member, (struct trial){.operation = HVD_ALLREDUCE,
                                     .type = type,
                                     .reduction = reduction,
                                     .rows = (int64_t)count,
                                     .width = 1,
                                     .in_place = in_place});
}

/* Adasum has a test of its own. */
static bool knows(hvd_dtype dtype, hvd_reduction reduction)
{
    return reduction != HVD_ADASUM && reduction_takes(reduction, dtype);
}

/* Every count in place and not, for every type and reduction. */
static void allreduce_full_product(struct member *member)
{
    for (int t = 0; t < DTYPES; t++) {
        for (int r = 0; r < REDUCTIONS; r++) {
            for (int c = 0; c < 2 * COUNTS && knows(dtypes[t], reductions[r]); c++)
                allreduce_case(member, dtypes[t], reductions[r], counts[c / 2], c % 2);
        }
    }
}

/* Two counts for each type and reduction, so that every pair of the three occurs; the largest for a few.
 * Under a sanitizer one of the two, drawn, as the numbers are compared without it. */
static void allreduce_product(struct member *member)
{
    for (int t = 0; t < DTYPES; t++) {
        for (int r = 0; r < REDUCTIONS; r++) {
            int first = SANITIZED ? (int)((test_seed() + (uint64_t)t) % 2) : 0,
                end = SANITIZED ? first + 1 : 2;
            for (int half = first; half < end && knows(dtypes[t], reductions[r]); half++) {
                int c = (t + r + half * COUNTS / 2) % COUNTS;
                bool in_place = (t + r / 2 + half) % 2;
                allreduce_case(member, dtypes[t], reductions[r], c == COUNTS - 1 && t % 3 ? 10007 : counts[c],
                               in_place);
            }
        }
    }
}

static void factors_case(struct member *member, hvd_dtype dtype)
{
    float values[2] = {(float)member->rank, 2};
    int64_t integers[2] = {member->rank, 2};
    int64_t shape[] = {2};
    hvd_tensor tensor = tensor_of(dtype == HVD_INT64 ? (void *)integers : values, dtype, shape, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, hvd_dtype_name(dtype), &tensor);
    request.prescale = &(double){2};
    request.postscale = &(double){0.5};
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    double sum = member->size * (member->size - 1) / 2.0, twos = 2.0 * member->size;
    double got[2] = {dtype == HVD_INT64 ? (double)integers[0] : values[0],
                     dtype == HVD_INT64 ? (double)integers[1] : values[1]};
    CHECK(got[0] == sum && got[1] == twos, "%s: factors gave %g %g, not %g %g", hvd_dtype_name(dtype), got[0],
          got[1], sum, twos);
}

static void factors(struct member *member)
{
    factors_case(member, HVD_FLOAT32);
    factors_case(member, HVD_INT64);
}

static void broadcast_product(struct member *member)
{
    for (int c = 0; c < COUNTS; c++) {
        for (int root = 0; root < member->size; root++)
            trial_run(member, (struct trial){.operation = HVD_BROADCAST,
                                             .type = HVD_INT32,
                                             .rows = (int64_t)counts[c],
                                             .width = 1,
                                             .root = root,
                                             .in_place = (c + root) % 2});
    }
}

/* Rank r gives `rows(r)` rows of `width` numbers. */
static int64_t rows_of(int rank, int pattern)
{
    return pattern == 0 ? 0 : pattern == 1 ? rank % 2 : pattern == 2 ? 3 : rank * 5000 + 1;
}

static void allgather_case(struct member *member, int pattern, int64_t width)
{
    char name[64];
    int64_t shape[] = {rows_of(member->rank, pattern), width};
    size_t count = (size_t)(shape[0] * width);
    double *input = malloc(count * sizeof *input + 1);
    for (size_t i = 0; i < count; i++)
        input[i] = member->rank * 1e6 + (double)i;
    hvd_tensor in = tensor_of(input, HVD_FLOAT64, shape, 2), out;
    snprintf(name, sizeof name, "allgather %d x%d", pattern, (int)width);
    hvd_request request = request_of(HVD_ALLGATHER, name, &in);
    CHECK_OK(hvd_run(member->context, &request, &out, &check_status));
    const double *got = out.data;
    int64_t rows = 0;
    for (int rank = 0; rank < member->size; rank++) {
        for (int64_t i = 0; i < rows_of(rank, pattern) * width; i++)
            CHECK(*got++ == rank * 1e6 + (double)i, "%s: rank %d element %d", name, rank, (int)i);
        rows += rows_of(rank, pattern);
    }
    CHECK(out.ndim == 2 && out.shape[0] == rows && out.shape[1] == width, "%s: shape [%d, %d]", name,
          (int)out.shape[0], (int)out.shape[1]);
    hvd_free(out.data);
    free(input);
}

static void allgather_product(struct member *member)
{
    for (int pattern = 0; pattern < 4; pattern++) {
        allgather_case(member, pattern, 1);
        allgather_case(member, pattern, 3);
        allgather_case(member, pattern, 0);
    }
}

static void barriers(struct member *member)
{
    for (int i = 0; i < 20; i++) {
        hvd_request request = request_of(HVD_BARRIER, NULL, NULL);
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    }
}

/* Three tensors of different shapes as one request. */
static void groups(struct member *member)
{
    float data[3][5];
    int64_t shapes[3][1] = {{1}, {5}, {0}};
    hvd_tensor tensors[3], outputs[3];
    for (int t = 0; t < 3; t++) {
        for (int i = 0; i < 5; i++)
            data[t][i] = (float)(member->rank + t);
        tensors[t] = tensor_of(data[t], HVD_FLOAT32, shapes[t], 1);
    }
    hvd_request request = request_of(HVD_ALLREDUCE, "group", tensors);
    request.count = 3;
    request.grouped = 1;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    float ranks = (float)(member->size * (member->size - 1)) / 2;
    CHECK(data[0][0] == ranks && data[1][4] == ranks + (float)member->size &&
              data[0][1] == (float)member->rank,
          "a group's sums are wrong");
    request = request_of(HVD_ALLGATHER, "group", tensors);
    request.count = 3;
    request.grouped = 1;
    CHECK_OK(hvd_run(member->context, &request, outputs, &check_status));
    CHECK(outputs[0].shape[0] == member->size && outputs[1].shape[0] == 5 * member->size &&
              outputs[2].shape[0] == 0,
          "a gathered group's shapes are wrong");
    for (int t = 0; t < 3; t++)
        hvd_free(outputs[t].data);
}

static void all_cases(struct member *member)
{
    if (test_full())
        allreduce_full_product(member);
    else
        allreduce_product(member);
    factors(member);
    broadcast_product(member);
    allgather_product(member);
    barriers(member);
    groups(member);
}

#define VARIANT(name, over, ...)                                                                             \
    GROUP_TEST(name, all_cases, 1, MOST_RANKS, .transport = over, SETTINGS(__VA_ARGS__))
VARIANT(over_each_transport, NULL, "cache_capacity", "1024")
VARIANT(over_shm_rings_only_tiny_buffers_no_cache, "shm", "allreduce_algorithm", "ring", "shm_ring_bytes",
        "4096", "cache_capacity", "0")
VARIANT(over_tcp_doubling_only_tiny_cache, "tcp", "allreduce_algorithm", "doubling", "cache_capacity", "8")
VARIANT(over_shm_chains_only_tiny_buffers, "shm", "allreduce_algorithm", "chain", "shm_ring_bytes", "4096")
VARIANT(over_tcp_chains_only, "tcp", "allreduce_algorithm", "chain")
VARIANT(over_shm_direct_reads, "shm", "shm_path", "direct")
static const char *const hosts[8] = {"a", "b", "b", "a", "b", "c", "c", "a"};
GROUP_TEST(over_hosts, all_cases, 2, MOST_RANKS, .transport = "auto", .hosts = hosts,
           SETTINGS("latency_threshold", "64", "ring_piece_bytes", "4096"))
GROUP_TEST(over_hosts_not_eager, all_cases, 4, 5, .transport = "auto", .hosts = hosts,
           SETTINGS("latency_threshold", "64", "ring_piece_bytes", "4096", "eager_threshold", "0"))
GROUP_TEST(over_shm_hierarchical_only, all_cases, 2, MOST_RANKS, .transport = "shm",
           SETTINGS("allreduce_algorithm", "hierarchical", "shm_ring_bytes", "4096"))
GROUP_TEST(over_faulty_shm, all_cases, 2, 3, .transport = "faulty-shm", SETTINGS("shm_ring_bytes", "16384"))
GROUP_TEST(over_faulty_tcp, all_cases, 3, 3, .transport = "faulty-tcp")
GROUP_TEST(over_tcp_encrypted, all_cases, 2, 3, .transport = "tcp", SETTINGS("encryption", "1"))
GROUP_TEST(over_shm_direct_reads_rings_only_tiny_buffers, all_cases, 2, 3, .transport = "shm",
           SETTINGS("shm_path", "direct", "allreduce_algorithm", "ring", "shm_ring_bytes", "4096"))
GROUP_TEST(over_shm_nontemporal_stores, all_cases, 2, 3, .transport = "shm",
           SETTINGS("shm_path", "nontemporal"))
