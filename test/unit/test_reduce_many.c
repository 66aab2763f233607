/* test_reduce_many.c - several vectors at once give what one after the other gives; half types are rounded
 * once. */
#include "base/types.h"
#include "device/kernel.h"
#include "device/reduce_many.h"
#include "test.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCES = 5, LIMIT = 5000, BYTES = LIMIT * 16 };

static _Alignas(16) char sources[SOURCES][BYTES], result[BYTES], expected[BYTES];

/* Zeros and ones: of the type where it is a half type, which sum up exactly, else in each byte. */
static void fill(hvd_dtype dtype)
{
    narrow_fn narrow = kernels_of(dtype)->narrow;
    uint16_t bits[2] = {0};
    if (narrow)
        narrow(&bits[1], &(float){1}, 1);
    for (int source = 0; source < SOURCES; source++)
        for (size_t i = 0; i < BYTES / 2; i++) {
            uint16_t value = narrow ? bits[rand() & 1] : (uint16_t)(rand() & 0x101);
            memcpy(&sources[source][2 * i], &value, sizeof value);
        }
}

static void one_after_the_other(hvd_dtype dtype, hvd_reduction reduction, int count, size_t elements)
{
    memcpy(expected, sources[0], elements * hvd_dtype_size(dtype));
    for (int i = 1; i < count; i++)
        reduce_combine(dtype, reduction)(expected, expected, sources[i], elements);
}

static void check(hvd_dtype dtype, hvd_reduction reduction, int count, size_t elements, int in_place)
{
    const void *given[SOURCES];
    for (int i = 0; i < count; i++)
        given[i] = sources[i];
    one_after_the_other(dtype, reduction, count, elements);
    char *to = in_place >= 0 ? sources[in_place] : result;
    size_t bytes = elements * hvd_dtype_size(dtype);
    static char before[BYTES];
    memcpy(before, to, bytes);
    result[bytes] = 0x5a;
    reduce_many(dtype, reduction, to, given, count, elements, 1, 1);
    if (memcmp(to, expected, bytes) != 0)
        fail_msg("%s %s of %d, %zu elements, in place of %d", hvd_dtype_name(dtype),
                 reduction_name(reduction), count, elements, in_place);
    assert_int_equal(result[bytes], 0x5a);
    memcpy(to, before, bytes);
}

static void check_dtype(hvd_dtype dtype, hvd_reduction reduction)
{
    static const size_t lengths[] = {0, 1, 63, 1024, 1025, LIMIT - 1};
    for (int count = 1; count <= SOURCES; count++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (int in_place = -1; in_place < count; in_place++)
                check(dtype, reduction, count, lengths[i], in_place);
}

TEST(every_type_and_reduction)
{
#define DTYPE(name, ...)                                                                                     \
    fill(HVD_##name);                                                                                        \
    for (hvd_reduction reduction = 0; reduction <= HVD_PRODUCT; reduction++)                                 \
        if (reduction != HVD_ADASUM && reduction_takes(reduction, HVD_##name))                               \
            check_dtype(HVD_##name, reduction);
#include "base/dtypes.def"
#undef DTYPE
}

/* 1024 + 0.5 + 0.5 is 1025 in float32, and 1024 when each sum is rounded to float16. */
TEST(halves_are_rounded_once)
{
    static const float values[] = {1024, 0.5f, 0.5f};
    uint16_t halves[3], sum, third;
    kernels_of(HVD_FLOAT16)->narrow(halves, values, 3);
    const void *given[] = {&halves[0], &halves[1], &halves[2]};
    float wide;
    reduce_many(HVD_FLOAT16, HVD_SUM, &sum, given, 3, 1, 1, 1);
    kernels_of(HVD_FLOAT16)->widen(&wide, &sum, 1);
    assert_true(wide == 1025);
    reduce_many(HVD_FLOAT16, HVD_AVERAGE, &third, given, 3, 1, 1, 3);
    kernels_of(HVD_FLOAT16)->widen(&wide, &third, 1);
    assert_true(wide == 341.75f); /* the float16 next to 1025 / 3 */
}

TEST(averages_and_factors)
{
    double a[] = {1, 2}, b[] = {3, 5}, c[] = {5, 11};
    int32_t i = 7, j = 4, k = -1, third;
    const void *doubles[] = {a, b, c}, *integers[] = {&i, &j, &k};
    reduce_many(HVD_FLOAT64, HVD_AVERAGE, b, doubles, 3, 2, 0.5, 3);
    assert_true(b[0] == 1.5 && b[1] == 3);
    reduce_many(HVD_INT32, HVD_AVERAGE, &third, integers, 3, 1, 1, 3);
    assert_int_equal(third, 3);
}
