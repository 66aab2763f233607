/* test_averages.c - averages of halves, whose sums would overflow: they never do, whatever the number of
 * ranks, the algorithm and the hosts. Those of whole numbers are the quotient, rounded once; others are as
 * exact as a sum in their type is. */
#include "base/types.h"
#include "group.h"
#include "values.h"

#include <math.h>
#include <string.h>

enum {
    RANKS = 5,
    ELEMENTS = 30011,
    KINDS = 5,
    WHOLE = KINDS - 1,
    ROOM = MOST_RANKS > RANKS ? MOST_RANKS : RANKS
};

static const char *const hosts[RANKS] = {"a", "b", "a", "c", "b"};
static const char *const pairs[] = {"a", "b", "a", "b", "c", "c", "b", "a"};
static const hvd_dtype types[] = {HVD_FLOAT16, HVD_BFLOAT16};

static double largest_of(hvd_dtype type)
{
    return type == HVD_FLOAT16 ? 65504 : 0x1.fep127;
}

/* By element: the largest on all ranks; alternating signs; everyday numbers; the smallest; whole numbers,
 * whose sums bfloat16 can hold. */
static double value_of(hvd_dtype type, int rank, int64_t i)
{
    static const double tiny[] = {0x1p-24, 3 * 0x1p-24, 0x1p-20};
    switch (i % KINDS) {
    case 0:
        return (i % (2 * KINDS) ? -1 : 1) * largest_of(type);
    case 1:
        return (rank % 2 ? -1 : 1) * largest_of(type);
    case 2:
        return (double)((i * 7 + rank * 13) % 101) / 8 - 6;
    case 3:
        return tiny[(i / KINDS + rank) % 3];
    default:
        return (double)((i / KINDS * 5 + rank * 11) % 33) - 12;
    }
}

static double mean_of(hvd_dtype type, int givers, int size, int64_t i, double *scale)
{
    double sum = 0;
    *scale = 0;
    for (int rank = 0; rank < givers; rank++) {
        double value = value_of(type, rank, i);
        sum += value;
        *scale = fmax(*scale, fabs(value));
    }
    return sum / size;
}

static double rounded(hvd_dtype type, double value)
{
    _Alignas(16) char number[16];
    number_put(type, number, value);
    return number_get(type, number);
}

static void check_averages(struct member *member, hvd_dtype type, const void *data, int64_t first,
                           int64_t elements, int givers)
{
    for (int64_t i = 0; i < elements; i++) {
        double scale, should = mean_of(type, givers, member->size, first + i, &scale);
        double is = number_get(type, (const char *)data + (size_t)i * hvd_dtype_size(type));
        /* A rounding for each rank, of half a step or of the smallest step. */
        double tolerance =
            member->size * (scale * number_step(type) / 2 + (type == HVD_FLOAT16 ? 0x1p-24 : 0));
        CHECK(fabs(is - should) <= tolerance, "%s: element %d is %g, not %g", hvd_dtype_name(type),
              (int)(first + i), is, should);
        if ((first + i) % KINDS == WHOLE)
            CHECK(is == rounded(type, should), "%s: element %d, of whole numbers, is %g, not %g",
                  hvd_dtype_name(type), (int)(first + i), is, rounded(type, should));
    }
}

static void average(struct member *member, hvd_operation operation, hvd_dtype type, int64_t elements,
                    int givers)
{
    static uint16_t memory[ROOM][ELEMENTS];
    void *data = memory[member->rank];
    hvd_tensor tensor = tensor_of(data, type, &elements, 1), output = tensor;
    for (int64_t i = 0; i < elements; i++)
        put_at(type, data, (size_t)i, value_of(type, member->rank, i));
    hvd_request request = request_of(operation, "average", &tensor);
    request.reduction = HVD_AVERAGE;
    CHECK_OK(hvd_run(member->context, &request, &output, &check_status));
    if (operation == HVD_ALLREDUCE) {
        check_averages(member, type, data, 0, elements, givers);
        return;
    }
    int64_t each = elements / member->size, more = elements % member->size;
    int64_t first = each * member->rank + (member->rank < more ? member->rank : more);
    check_averages(member, type, output.data, first, output.shape[0], givers);
    hvd_free(output.data);
}

static void averages(struct member *member)
{
    static const int64_t lengths[] = {1, 7, 600, ELEMENTS};
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < 4; i++) {
            average(member, HVD_ALLREDUCE, types[t], lengths[i], member->size);
            average(member, HVD_REDUCESCATTER, types[t], lengths[i], member->size);
        }
}

GROUP_TEST(test_over_shm, averages, 1, MOST_RANKS, .transport = "shm")
GROUP_TEST(test_between_hosts, averages, RANKS, RANKS, .transport = "auto", .hosts = hosts)
GROUP_TEST(test_by_doubling, averages, 1, MOST_RANKS, .transport = "shm",
           SETTINGS("allreduce_algorithm", "doubling"))
GROUP_TEST(test_around_a_ring, averages, 1, MOST_RANKS, .transport = "shm",
           SETTINGS("allreduce_algorithm", "ring"))
GROUP_TEST(test_in_a_chain, averages, 1, MOST_RANKS, .transport = "shm", SETTINGS("deterministic", "1"))
GROUP_TEST(test_by_hosts, averages, 2, MOST_RANKS, .transport = "auto", .hosts = pairs,
           SETTINGS("allreduce_algorithm", "hierarchical"))

/* Ranks that have joined count as zeros. */
static void beside_a_joined_rank(struct member *member)
{
    hvd_request join = {.struct_size = sizeof join, .operation = HVD_JOIN};
    for (int t = 0; t < 2 && member->rank < member->size - 1; t++) {
        average(member, HVD_ALLREDUCE, types[t], 3, member->size - 1);
        average(member, HVD_ALLREDUCE, types[t], ELEMENTS, member->size - 1);
    }
    CHECK_OK(hvd_run(member->context, &join, NULL, &check_status));
}

GROUP_TEST(test_beside_a_joined_rank, beside_a_joined_rank, 2, 4, .transport = "shm")
GROUP_TEST(test_between_hosts_beside_a_joined_rank, beside_a_joined_rank, RANKS, RANKS, .transport = "auto",
           .hosts = hosts)
