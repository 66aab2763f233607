/* test_reduce.c - every element kernel against a plain loop in the type it computes in, for every length
 * around the widths of registers, in place and out of place; and the corners of each family. */
#include "device/kernel.h"
#include "numbers.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#define LIMIT 300 /* elements */

static uint64_t random_state = 88172645463325252u;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

struct type {
    hvd_dtype dtype;
    size_t parts;
    void (*expect)(hvd_reduction reduction, void *result, const void *a, const void *b);
    bool (*is_nan)(const void *part);
};

static const struct type types[] = {
#define DTYPE(name, text, storage, compute, family, ...)                                                     \
    {HVD_##name, PARTS_##family, expect_##name, is_nan_##name},
#include "base/dtypes.def"
#undef DTYPE
};

#define TYPES (sizeof types / sizeof *types)

/* ---- combine --------------------------------------------------------------------------------------- */

/* Random bits, so that all exponents, subnormals, infinities and NaNs occur; some operands are equal. */
static void fill(char *a, char *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        a[i] = (char)random_next();
        b[i] = random_next() % 16 ? (char)random_next() : a[i];
    }
}

static void check_combined(const struct type *type, hvd_reduction reduction, const char *is, const char *a,
                           const char *b, size_t elements)
{
    size_t element = hvd_dtype_size(type->dtype), part = element / type->parts;
    for (size_t i = 0; i < elements; i++, is += element, a += element, b += element) {
        _Alignas(16) char should[16];
        type->expect(reduction, should, a, b);
        for (size_t at = 0; at < element; at += part) {
            if (type->is_nan(should + at) && type->is_nan(is + at))
                continue;
            if (memcmp(is + at, should + at, part) != 0)
                fail_msg("%s %s, element %zu of %zu", hvd_dtype_name(type->dtype), reduction_name(reduction),
                         i, elements);
        }
    }
}

/* Operands start anywhere an element may start; where: 0 out of place, 1 onto a, 2 onto b. */
static void check_combine(const struct type *type, hvd_reduction reduction, size_t elements, int where)
{
    static _Alignas(64) char a[16 * LIMIT], b[16 * LIMIT], result[16 * LIMIT], old_a[16 * LIMIT],
        old_b[16 * LIMIT];
    size_t element = hvd_dtype_size(type->dtype), bytes = elements * element;
    size_t at_a = (1 + random_next() % 4) * element, at_b = (1 + random_next() % 4) * element;
    char *to = where == 1 ? a + at_a : where == 2 ? b + at_b : result + element;
    fill(a, b, sizeof a);
    memset(result, 0x5a, sizeof result);
    memcpy(old_a, a, sizeof a);
    memcpy(old_b, b, sizeof b);
    char before = to[-1], after = to[bytes];
    reduce_combine(type->dtype, reduction)(to, a + at_a, b + at_b, elements);
    check_combined(type, reduction, to, old_a + at_a, old_b + at_b, elements);
    assert_int_equal(to[-1], before);
    assert_int_equal(to[bytes], after);
}

TEST(test_combine)
{
    for (size_t t = 0; t < TYPES; t++)
        for (size_t r = 0; r < REDUCTIONS; r++)
            for (size_t elements = 0; elements < LIMIT - 8; elements += elements < 130 ? 1 : 37)
                for (int where = 0; where < 3 && reduction_takes(reductions[r], types[t].dtype); where++)
                    check_combine(&types[t], reductions[r], elements, where);
}

TEST(test_wrap)
{
    uint8_t u = 200, u_sum;
    int32_t i = INT32_MAX, one = 1, i_sum;
    int64_t l = INT64_MIN, minus = -1, l_sum, l_product;
    reduce_combine(HVD_UINT8, HVD_SUM)(&u_sum, &u, &u, 1);
    reduce_combine(HVD_INT32, HVD_SUM)(&i_sum, &i, &one, 1);
    reduce_combine(HVD_INT64, HVD_SUM)(&l_sum, &l, &minus, 1);
    reduce_combine(HVD_INT64, HVD_PRODUCT)(&l_product, &l, &minus, 1);
    assert_int_equal(u_sum, 144);
    assert_int_equal(i_sum, INT32_MIN);
    assert_true(l_sum == INT64_MAX);
    assert_true(l_product == INT64_MIN);
}

/* There is a kernel exactly if the reduction is defined for the type. */
TEST(test_kernels_exist)
{
    for (size_t t = 0; t < TYPES; t++)
        for (size_t r = 0; r < REDUCTIONS; r++) {
            bool may = reductions[r] != HVD_AVERAGE && reduction_takes(reductions[r], types[t].dtype);
            if (may)
                assert_non_null(reduce_combine(types[t].dtype, reductions[r]));
        }
    assert_null(reduce_combine(HVD_COMPLEX64, HVD_MIN));
}

/* Any two NaNs have one result, at every position in the vector and in both orders; a NaN and a number give
 * a NaN. */
TEST(test_nan)
{
    static const uint16_t nans[] = {0x7fc1, 0xffc2, 0x7fff, 0xfff1}; /* the upper half of a float32, too */
    static const hvd_dtype halves[] = {HVD_FLOAT16, HVD_BFLOAT16};
    uint16_t a[41], b[41], there[41], back[41];
    for (int d = 0; d < 2; d++)
        for (size_t r = 0; r < REDUCTIONS; r++) {
            for (int i = 0; i < 41; i++) {
                a[i] = nans[i % 4];
                b[i] = i % 8 < 4 ? nans[(i + 1) % 4] : 0x3c00;
            }
            combine_fn combine = reduce_combine(halves[d], reductions[r]);
            combine(there, a, b, 41);
            combine(back, b, a, 41);
            for (int i = 0; i < 41; i++) {
                float x = d ? from_BFLOAT16(there[i]) : from_FLOAT16(there[i]);
                float y = d ? from_BFLOAT16(back[i]) : from_FLOAT16(back[i]);
                assert_true(x != x && y != y);
                if (reductions[r] == HVD_SUM || reductions[r] == HVD_PRODUCT)
                    assert_int_equal(there[i], back[i]);
            }
        }
}

/* ---- scale ------------------------------------------------------------------------------------------ */

#define SCALED(dtype, type, value, factor, divisor)                                                          \
    (*(type *)scaled(dtype, &(type){value}, sizeof(type), factor, divisor))

/* The same in every place of a vector, in place and out of place. */
static void *scaled(hvd_dtype dtype, const void *value, size_t element, double factor, int64_t divisor)
{
    static _Alignas(64) char vector[16 * 37], result[16 * 37];
    for (size_t i = 0; i < 37; i++)
        memcpy(vector + i * element, value, element);
    reduce_scale(dtype, result, vector, 37, factor, divisor);
    reduce_scale(dtype, vector, vector, 37, factor, divisor);
    for (size_t i = 0; i < 37; i++) {
        assert_memory_equal(result + i * element, result, element);
        assert_memory_equal(vector + i * element, result, element);
    }
    return result;
}

TEST(test_scale)
{
    assert_int_equal(SCALED(HVD_INT8, int8_t, -7, 1, 2), -3);
    assert_int_equal(SCALED(HVD_UINT8, uint8_t, 255, 1, 4), 63);
    assert_int_equal(SCALED(HVD_INT32, int32_t, INT32_MIN, 1, 3), INT32_MIN / 3);
    assert_int_equal(SCALED(HVD_INT32, int32_t, INT32_MAX, 1, 1), INT32_MAX);
    assert_true(SCALED(HVD_INT64, int64_t, INT64_MAX, 1, 7) == INT64_MAX / 7);
    assert_true(SCALED(HVD_INT64, int64_t, INT64_MIN, 1, 7) == INT64_MIN / 7);
    assert_int_equal(SCALED(HVD_INT32, int32_t, 7, 0.5, 1), 3);
    assert_int_equal(SCALED(HVD_INT32, int32_t, -6, 0.5, 3), -1);
    assert_true(SCALED(HVD_FLOAT32, float, 3, 1, 3) == 3 * (1.0f / 3));
    assert_true(SCALED(HVD_FLOAT64, double, 3, 0.5, 3) == 3 * (0.5 / 3));
    assert_int_equal(SCALED(HVD_FLOAT16, uint16_t, to_FLOAT16(3), 1, 7), to_FLOAT16(3 * (1.0f / 7)));
    assert_int_equal(SCALED(HVD_BFLOAT16, uint16_t, to_BFLOAT16(3), 1, 7), to_BFLOAT16(3 * (1.0f / 7)));
}

/* Factors multiply as IEEE 754 requires, even if a float32 can't hold them. */
TEST(test_scale_by_any_factor)
{
    static const double factors[] = {0,      -0.0,     1e-310, -1e-310, 1e-42,    0x1p-140, 1e39,
                                     -1e300, INFINITY, NAN,    0.3,     -0x1p-24, 0x1p20};
    static const double values[] = {0, -0.0, 1, -3, 0x1p-24, -0x1p-20, 65504, INFINITY, -INFINITY, NAN};
    for (size_t f = 0; f < sizeof factors / sizeof *factors; f++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            double product = values[v] * factors[f];
            float single = SCALED(HVD_FLOAT32, float, (float)values[v], factors[f], 1);
            uint16_t half = SCALED(HVD_FLOAT16, uint16_t, to_FLOAT16((float)values[v]), factors[f], 1);
            float wide = from_FLOAT16(half), should = from_FLOAT16(to_FLOAT16((float)product));
            bool is_nan = product != product;
            assert_true(is_nan ? single != single
                               : fabs((double)single - (float)product) <= fabs(product) * 0x1p-22 ||
                                     single == (float)product);
            assert_true(is_nan ? wide != wide : wide == should);
            assert_true(is_nan ||
                        (!signbit(single) == !signbit(product) && !signbit(wide) == !signbit(product)));
        }
    assert_int_equal(SCALED(HVD_INT16, int16_t, -7, 0, 1), 0);
    assert_int_equal(SCALED(HVD_INT16, int16_t, -7, 1e300, 1), INT16_MIN);
    assert_int_equal(SCALED(HVD_UINT64, uint64_t, 7, -1e-310, 2), 0);
}

/* Integers divide without a factor: every value of 16 bits, and others at the edges of a quotient. */
TEST(test_scale_divides)
{
    static const int64_t divisors[] = {1,   2,    3,    7,     10,    41,    49,      64,
                                       255, 1000, 4097, 32769, 65535, 65537, 2097151, 16777215};
    static uint16_t halves[65536], divided[65536];
    for (size_t i = 0; i < 65536; i++)
        halves[i] = (uint16_t)i;
    for (size_t d = 0; d < sizeof divisors / sizeof *divisors; d++) {
        int64_t by = divisors[d];
        reduce_scale(HVD_UINT16, divided, halves, 65536, 1, by);
        for (size_t i = 0; i < 65536; i++)
            assert_int_equal(divided[i], (int64_t)i / by);
        reduce_scale(HVD_INT16, divided, halves, 65536, 1, by);
        for (size_t i = 0; i < 65536; i++)
            assert_int_equal((int16_t)divided[i], (int16_t)i / by);
        for (int value = -128; value < 256; value++) {
            if (value < 128)
                assert_int_equal(SCALED(HVD_INT8, int8_t, (int8_t)value, 1, by), value / by);
            if (value >= 0)
                assert_int_equal(SCALED(HVD_UINT8, uint8_t, (uint8_t)value, 1, by), value / by);
        }
        for (int turn = 0; turn < 1000; turn++) {
            uint32_t value = (uint32_t)(random_next() % (UINT32_MAX / (uint64_t)by + 1) * (uint64_t)by);
            value -= (uint32_t)(turn % 2); /* a multiple, and just below one */
            assert_int_equal(SCALED(HVD_UINT32, uint32_t, value, 1, by), value / by);
            assert_int_equal(SCALED(HVD_INT32, int32_t, (int32_t)value, 1, by), (int32_t)value / by);
            uint64_t large = random_next() >> turn % 64;
            large -= turn % 3 ? large % (uint64_t)by + (uint64_t)(turn % 3 - 1) : 0; /* 2^64 - 1 below 0 */
            assert_true(SCALED(HVD_INT64, int64_t, (int64_t)large, 1, by) == (int64_t)large / by);
            assert_true(SCALED(HVD_UINT64, uint64_t, large, 1, by) == large / (uint64_t)by);
        }
    }
}

/* Every length, from wherever an element may start, onto itself and elsewhere, as each element alone. */
TEST(test_scale_lengths)
{
    static const double factors[][2] = {{1, 1}, {1, 7}, {0.3, 1}, {-2.5, 3}};
    static _Alignas(64) char data[16 * LIMIT], result[16 * LIMIT], unused[16 * LIMIT], should[16];
    for (size_t t = 0; t < TYPES; t++)
        for (size_t elements = 0; elements <= 130 && types[t].dtype != HVD_BOOL; elements++) {
            const double *factor = factors[random_next() % 4];
            size_t element = hvd_dtype_size(types[t].dtype), bytes = elements * element;
            char *from = data + (1 + random_next() % 4) * element,
                 *to = elements % 2 ? from : result + element;
            fill(data, unused, sizeof data);
            memcpy(unused, from, bytes);
            char before = to[-1], after = to[bytes];
            reduce_scale(types[t].dtype, to, from, elements, factor[0], (int64_t)factor[1]);
            for (size_t at = 0; at < bytes; at += element) {
                reduce_scale(types[t].dtype, should, unused + at, 1, factor[0], (int64_t)factor[1]);
                assert_memory_equal(to + at, should, element);
            }
            assert_true(to[-1] == before && to[bytes] == after);
        }
}

TEST(test_scale_complex)
{
    float singles[2] = {3, -6}, *single = scaled(HVD_COMPLEX64, singles, sizeof singles, 2, 3);
    assert_true(single[0] == 3 * (2.0f / 3) && single[1] == -6 * (2.0f / 3));
    double doubles[2] = {0.1, 1e300}, *scaled_doubles = scaled(HVD_COMPLEX128, doubles, 16, 0.5, 1);
    assert_true(scaled_doubles[0] == 0.05 && scaled_doubles[1] == 5e299);
}

TEST(test_scale_saturates)
{
    assert_int_equal(SCALED(HVD_INT8, int8_t, 100, 2, 1), 127);
    assert_int_equal(SCALED(HVD_INT8, int8_t, -100, 2, 1), -128);
    assert_int_equal(SCALED(HVD_UINT8, uint8_t, 200, 2, 1), 255);
    assert_int_equal(SCALED(HVD_UINT8, uint8_t, 200, -2, 1), 0);
    assert_int_equal(SCALED(HVD_INT32, int32_t, INT32_MAX, 1.5, 1), INT32_MAX);
    assert_true(SCALED(HVD_INT64, int64_t, INT64_MAX, 2, 1) == INT64_MAX);
    assert_true(SCALED(HVD_INT64, int64_t, INT64_MIN, 2, 1) == INT64_MIN);
    assert_int_equal(SCALED(HVD_UINT16, uint16_t, 40000, 2, 1), 65535);
    assert_int_equal(SCALED(HVD_INT16, int16_t, -30000, 1.5, 1), -32768);
    assert_true(SCALED(HVD_UINT32, uint32_t, UINT32_MAX, 1.5, 1) == UINT32_MAX);
    assert_true(SCALED(HVD_UINT64, uint64_t, UINT64_MAX, 2, 1) == UINT64_MAX);
    assert_true(SCALED(HVD_UINT64, uint64_t, 5, -1.0, 1) == 0);
}

/* ---- halves, exhaustively ---------------------------------------------------------------------------- */

#define HALVES 65536

static uint16_t all[HALVES], scaled_all[HALVES], other[HALVES], portable_all[HALVES];

static int fill_all(void **state)
{
    (void)state;
    for (int i = 0; i < HALVES; i++)
        all[i] = (uint16_t)i;
    return 0;
}

const struct test_hooks test_hooks = {.before_all = fill_all};

TEST(test_half_identity)
{
    for (int d = 0; d < 2; d++) {
        reduce_scale(d ? HVD_BFLOAT16 : HVD_FLOAT16, scaled_all, all, HALVES, 1, 1);
        for (int i = 0; i < HALVES; i++) {
            float value = d ? from_BFLOAT16(scaled_all[i]) : from_FLOAT16(scaled_all[i]);
            float before = d ? from_BFLOAT16(all[i]) : from_FLOAT16(all[i]);
            assert_true(before != before ? value != value : scaled_all[i] == i);
        }
    }
}

static void check_portable(combine_fn native, combine_fn portable)
{
    for (int turn = 0; turn < 10; turn++) {
        for (int i = 0; i < HALVES; i++)
            other[i] = (uint16_t)random_next();
        native(scaled_all, all, other, HALVES - (size_t)turn);
        portable(portable_all, all, other, HALVES - (size_t)turn);
        assert_memory_equal(scaled_all, portable_all, (HALVES - (size_t)turn) * sizeof *all);
    }
}

static void check_conversions(hvd_dtype dtype, const struct kernels *kernels)
{
    static float wide[HALVES];
    for (size_t elements = 0; elements <= HALVES;
         elements = elements < 130 ? elements + 1 : elements * 2 - 4) {
        const uint16_t *from = all + (HALVES - elements) / 2;
        wide[elements % HALVES] = 5;
        kernels->widen(wide, from, elements);
        assert_true(elements == HALVES || wide[elements] == 5);
        scaled_all[elements % HALVES] = 0x1234;
        kernels->narrow(scaled_all, wide, elements);
        assert_true(elements == HALVES || scaled_all[elements] == 0x1234);
        for (size_t i = 0; i < elements; i++) {
            float value = dtype == HVD_BFLOAT16 ? from_BFLOAT16(from[i]) : from_FLOAT16(from[i]);
            assert_true(value != value ? wide[i] != wide[i] : wide[i] == value && scaled_all[i] == from[i]);
        }
    }
    for (int i = 0; i < HALVES; i++) { /* all exponents, and ties */
        uint32_t bits = (uint32_t)(random_next() & (i % 2 ? 0xffffffff : 0xfffff000));
        memcpy(&wide[i], &bits, sizeof bits);
        if (wide[i] != wide[i])
            wide[i] = NAN;
    }
    kernels->narrow(scaled_all, wide, HALVES);
    for (int i = 0; i < HALVES; i++)
        assert_int_equal(scaled_all[i], dtype == HVD_BFLOAT16 ? to_BFLOAT16(wide[i]) : to_FLOAT16(wide[i]));
}

static void check_weigh(bool is_bfloat16, weigh_fn weigh)
{
    static const float weights[][2] = {{0.5F, 0.5F}, {1, 0.25F}, {0x1p-10F, 1}, {0x1p-4F, 0x1p-4F}};
    for (size_t elements = 0; elements <= 130; elements++) {
        const float *by = weights[elements % 4];
        const uint16_t *from = all + random_next() % (HALVES - 200);
        for (size_t i = 0; i < 131; i++)
            other[i] = portable_all[i] = (uint16_t)random_next();
        weigh(other, from, other, elements, by[0], by[1]);
        assert_int_equal(other[elements], portable_all[elements]);
        for (size_t i = 0; i < elements; i++) {
            float a = is_bfloat16 ? from_BFLOAT16(from[i]) : from_FLOAT16(from[i]);
            float b = is_bfloat16 ? from_BFLOAT16(portable_all[i]) : from_FLOAT16(portable_all[i]);
            float should = a * by[0] + b * by[1];
            if (should != should)
                should = NAN;
            assert_int_equal(other[i], is_bfloat16 ? to_BFLOAT16(should) : to_FLOAT16(should));
        }
    }
}

/* The portable kernels at place -1, then those with the processor's instructions. */
static const struct kernels *half_kernels(hvd_dtype dtype, int place)
{
    const struct kernels *portable = dtype == HVD_BFLOAT16 ? &kernels_BFLOAT16 : &kernels_FLOAT16;
    return place < 0 ? portable : kernels_native(dtype, place);
}

static const hvd_dtype halves[] = {HVD_FLOAT16, HVD_BFLOAT16};

TEST(test_half_weigh)
{
    const struct kernels *kernels;
    for (int turn = 0; turn < 20; turn++)
        for (int d = 0; d < 2; d++)
            for (int place = -1; (kernels = half_kernels(halves[d], place)); place++)
                check_weigh(d, kernels->weigh);
    assert_null(reduce_weigh(HVD_FLOAT32));
}

TEST(test_half_conversions)
{
    const struct kernels *kernels;
    for (int d = 0; d < 2; d++)
        for (int place = -1; (kernels = half_kernels(halves[d], place)); place++)
            check_conversions(halves[d], kernels);
}

/* The kernels with instructions for them and those without give the same bits. */
TEST(test_half_portable)
{
    const struct kernels *native;
    double factors[] = {1, 3, 1.0 / 3, 1e-3, 6e4, 1e-7};
    for (int d = 0; d < 2; d++)
        for (int place = 0; (native = half_kernels(halves[d], place)); place++) {
            const struct kernels *portable = half_kernels(halves[d], -1);
            for (int f = 0; f < 6; f++) {
                native->scale(scaled_all, all, HALVES, factors[f], 1);
                portable->scale(portable_all, all, HALVES, factors[f], 1);
                assert_memory_equal(scaled_all, portable_all, sizeof all);
            }
            check_portable(native->sum, portable->sum);
            check_portable(native->min, portable->min);
            check_portable(native->max, portable->max);
            check_portable(native->product, portable->product);
        }
}
