/* test_factors.c - the factors before and after a reduction: any of them, also infinite ones and NaN,
 * multiply as IEEE 754 requires, in every type, by every algorithm, in the messages of the coordinator, and
 * with ranks that have joined. */
#include "base/types.h"
#include "group.h"
#include "values.h"

#include <math.h>
#include <string.h>

#ifdef __x86_64__
#include <xmmintrin.h>

#define FLUSHES 0x8040U /* subnormal operands and results are zeros */
#endif

enum { RANKS = 5, LONG = 20011, ROOM = MOST_RANKS > RANKS ? MOST_RANKS : RANKS };

static const char *const hosts[RANKS] = {"a", "b", "a", "c", "b"};
static const hvd_dtype types[] = {HVD_FLOAT16,   HVD_BFLOAT16,   HVD_FLOAT32, HVD_FLOAT64,
                                  HVD_COMPLEX64, HVD_COMPLEX128, HVD_INT8,    HVD_INT64};
static const double factors[] = {0, -0.0, INFINITY, -INFINITY, NAN, 1e-310, 1e300, 0x1p-140, 0.5};

struct use {
    hvd_operation operation;
    hvd_dtype type;
    hvd_reduction reduction;
    double before, after;
    int64_t elements;
    int ranks; /* that give something: the others have joined */
};

static double in_type(hvd_dtype type, double value)
{
    _Alignas(16) char element[16];
    if (is_integer(type))
        value = trunc(fmin(fmax(value, type == HVD_INT8 ? INT8_MIN : (double)INT64_MIN),
                           type == HVD_INT8 ? INT8_MAX : 0x1.fffffffffffffp62));
    number_put(type, element, value);
    return number_get(type, element);
}

/* Of ranks that give 1, 2, ... or, as the reduction is Product, 2 each. */
static double given_by(const struct use *use, int rank)
{
    return in_type(use->type, (use->reduction == HVD_PRODUCT ? 2 : rank + 1) * use->before);
}

static double expected_of(const struct use *use, int size)
{
    double result = given_by(use, 0);
    for (int rank = 1; rank < use->ranks; rank++) {
        double value = given_by(use, rank);
        if (use->reduction == HVD_PRODUCT)
            result = in_type(use->type, result * value);
        else if (use->reduction == HVD_MAX)
            result = value > result || value != value ? value : result;
        else
            result = in_type(use->type, result + value);
    }
    double divisor = use->reduction == HVD_AVERAGE ? size : 1;
    return in_type(use->type, in_type(use->type, result / divisor) * use->after);
}

static bool is_as(hvd_dtype type, double is, double should)
{
    if (should != should)
        return is != is;
    double tolerance = fabs(should) * (type == HVD_INT8    ? 0
                                       : type == HVD_INT64 ? 0x1p-52
                                                           : 4 * number_step(type));
    return is == should ? is_integer(type) || !signbit(is) == !signbit(should)
                        : fabs(is - should) <= tolerance;
}

static bool may_be(const struct use *use)
{
    bool limits = is_integer(use->type) && (use->reduction == HVD_PRODUCT || fabs(use->before) > 1e9);
    /* The imaginary part is 0. */
    bool parts = dtype_table[use->type].family == FAMILY_complex && !isfinite(use->before * use->after);
    return !limits && !parts &&
           !types_check_reduction(use->operation, use->type, use->reduction,
                                  (double[]){use->before, use->after}, NULL);
}

static void reduce(struct member *member, const struct use *use)
{
    static _Alignas(16) char memory[ROOM][LONG * 16];
    char *data = memory[member->rank];
    int64_t shape[] = {use->elements};
    hvd_tensor tensor = tensor_of(data, use->type, shape, 1), output = tensor;
    for (int64_t i = 0; i < use->elements; i++)
        put_at(use->type, data, (size_t)i, use->reduction == HVD_PRODUCT ? 2 : member->rank + 1);
    hvd_request request = request_of(use->operation, "factors", &tensor);
    request.reduction = use->reduction;
    request.prescale = &use->before;
    request.postscale = &use->after;
    CHECK_OK(hvd_run(member->context, &request, &output, &check_status));
    double should = expected_of(use, member->size);
    bool scatters = use->operation == HVD_REDUCESCATTER;
    for (int64_t i = 0; i < (scatters ? output.shape[0] : use->elements); i += 1 + i / 3) {
        const void *at = (char *)output.data + (size_t)i * hvd_dtype_size(use->type);
        double is = number_get(use->type, at);
        CHECK(is_as(use->type, is, should),
              "%s %s: element %d of %d is %g, not %g, with %g before and %g after", hvd_dtype_name(use->type),
              hvd_operation_name(use->operation), (int)i, (int)use->elements, is, should, use->before,
              use->after);
    }
    if (scatters)
        hvd_free(output.data);
}

static void reduce_all(struct member *member, int ranks, bool scatters)
{
    static const hvd_reduction kinds[] = {HVD_SUM, HVD_AVERAGE, HVD_PRODUCT, HVD_MAX};
    static const int64_t lengths[] = {1, 300, LONG};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t f = 0; f < 2 * sizeof factors / sizeof *factors; f++) {
            size_t turn = t + f;
            struct use use = {.operation = scatters && turn % 4 == 0 ? HVD_REDUCESCATTER : HVD_ALLREDUCE,
                              .type = types[t],
                              .reduction = kinds[turn / 4 % (turn % 4 ? 4 : 2)],
                              .before = f % 2 ? factors[f / 2] : 1,
                              .after = f % 2 ? 1 : factors[f / 2],
                              .elements = turn % 11 ? lengths[turn % 2] : lengths[2],
                              .ranks = ranks};
            if (may_be(&use))
                reduce(member, &use);
        }
}

static void with_every_factor(struct member *member)
{
    reduce_all(member, member->size, true);
}

GROUP_TEST(test_every_factor, with_every_factor, 1, MOST_RANKS, .transport = "shm")
GROUP_TEST(test_every_factor_between_hosts, with_every_factor, RANKS, RANKS, .transport = "auto",
           .hosts = hosts)
GROUP_TEST(test_every_factor_by_doubling, with_every_factor, RANKS, RANKS, .transport = "shm",
           SETTINGS("allreduce_algorithm", "doubling"))
GROUP_TEST(test_every_factor_in_a_chain, with_every_factor, 3, 3, .transport = "shm",
           SETTINGS("deterministic", "1"))
GROUP_TEST(test_every_factor_by_hosts, with_every_factor, RANKS, RANKS, .transport = "auto", .hosts = hosts,
           SETTINGS("allreduce_algorithm", "hierarchical"))

/* The identity that stands for a rank that has joined is not scaled. */
static void beside_a_joined_rank(struct member *member)
{
    hvd_request join = {.struct_size = sizeof join, .operation = HVD_JOIN};
    if (member->rank < member->size - 1)
        reduce_all(member, member->size - 1, false);
    CHECK_OK(hvd_run(member->context, &join, NULL, &check_status));
}

GROUP_TEST(test_every_factor_beside_a_joined_rank, beside_a_joined_rank, 3, 3, .transport = "shm")

#ifdef __x86_64__
/* Threads of frameworks take subnormal numbers for zeros, of which the engine knows nothing. */
static void in_another_mode(struct member *member)
{
    unsigned own = _mm_getcsr();
    float data = 0x1p-140F, half = 1;
    int64_t one = 1;
    hvd_tensor tensor = tensor_of(&data, HVD_FLOAT32, &one, 1),
               other = tensor_of(&half, HVD_FLOAT32, &one, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, "subnormal", &tensor);
    hvd_request scaled = request_of(HVD_ALLREDUCE, "scaled", &other);
    scaled.prescale = &(double){0x1p-140};
    if (member->rank % 2)
        _mm_setcsr(own | FLUSHES);
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    CHECK_OK(hvd_run(member->context, &scaled, NULL, &check_status));
    CHECK(_mm_getcsr() >> 6 == (member->rank % 2 ? own | FLUSHES : own) >> 6,
          "the thread's mode has changed");
    _mm_setcsr(own);
    float should = 0x1p-140F * (float)member->size;
    CHECK(data == should && half == should, "%g and %g, not %g", data, half, should);
}

GROUP_TEST(test_threads_that_flush_subnormal_numbers, in_another_mode, 2, 4, .transport = "shm")
#endif

/* Ranks whose factors differ in the sign of zero only don't agree; NaNs of any bits do. */
static void that_differ(struct member *member)
{
    float data = 1;
    int64_t one = 1;
    hvd_tensor tensor = tensor_of(&data, HVD_FLOAT32, &one, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, "differ", &tensor);
    hvd_status status;
    request.prescale = &(double){member->rank ? 0.0 : -0.0};
    hvd_code code = hvd_run(member->context, &request, NULL, &status);
    CHECK(code == HVD_MISMATCH && strstr(status.text, "disagree on the prescale factor: rank 0 has -0, rank"),
          "%s", status.text);
    request.prescale = &(double){member->rank ? NAN : -NAN};
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    CHECK(data != data, "%g", data);
}

GROUP_TEST(test_factors_that_differ, that_differ, 2, 2, .transport = "shm")
