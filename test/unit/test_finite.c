/* test_finite.c - numbers that are not finite are found at every place, in every type; finite ones are not.
 */
#include "device/finite.h"
#include "numbers.h"
#include "test.h"

#include <stdlib.h>

#define LIMIT 140 /* elements: more than a few registers */

/* The real or imaginary part of an element has this type. */
static hvd_dtype part_of(hvd_dtype dtype)
{
    return dtype == HVD_COMPLEX64 ? HVD_FLOAT32 : dtype == HVD_COMPLEX128 ? HVD_FLOAT64 : dtype;
}

/* The largest finite number, with all bits of its fraction. */
static void put_largest(hvd_dtype part, char *to)
{
    uint64_t bits = 0;
    size_t bytes = hvd_dtype_size(part);
    number_put(part, to, INFINITY);
    memcpy(&bits, to, bytes);
    bits--;
    memcpy(to, &bits, bytes);
}

static enum finiteness finiteness_of_elements(hvd_dtype dtype, char *data, size_t count)
{
    struct span span = {data, count * hvd_dtype_size(dtype)};
    return finiteness_of(dtype, &span, 1, SIZE_MAX);
}

static void check_type(hvd_dtype dtype)
{
    hvd_dtype part = part_of(dtype);
    size_t bytes = hvd_dtype_size(part), parts = hvd_dtype_size(dtype) / bytes;
    _Alignas(16) static char data[16 * (LIMIT + 1)];
    for (size_t count = 0; count <= LIMIT; count += count < 70 ? 1 : 23) {
        for (size_t i = 0; i < count * parts; i++)
            put_largest(part, data + i * bytes);
        number_put(part, data + count * parts * bytes, NAN); /* behind the end */
        assert_int_equal(finiteness_of_elements(dtype, data, count), ALL_FINITE);
        for (size_t place = 0; place < count * parts; place++) {
            char *at = data + place * bytes;
            number_put(part, at, place % 2 ? -INFINITY : INFINITY);
            assert_int_equal(finiteness_of_elements(dtype, data, count), HAS_INFINITY);
            number_put(part, at, place % 2 ? -NAN : NAN);
            assert_int_equal(finiteness_of_elements(dtype, data, count), HAS_NAN);
            number_put(part, data, INFINITY); /* may be the same place */
            assert_int_equal(finiteness_of_elements(dtype, data, count), place ? HAS_NAN : HAS_INFINITY);
            put_largest(part, data);
            put_largest(part, at);
        }
    }
}

TEST(test_floats_of_every_type)
{
    for (int i = 0; i < DTYPES; i++) {
        if (!is_integer(dtypes[i]))
            check_type(dtypes[i]);
    }
}

TEST(test_integers_are_finite)
{
    char data[1024];
    memset(data, -1, sizeof data);
    for (int i = 0; i < DTYPES; i++) {
        if (is_integer(dtypes[i]))
            assert_int_equal(finiteness_of_elements(dtypes[i], data, sizeof data / hvd_dtype_size(dtypes[i])),
                             ALL_FINITE);
    }
}

TEST(test_several_spans)
{
    enum { SPANS = 4, LENGTH = 40 };
    static float data[SPANS][LENGTH];
    struct span spans[SPANS];
    for (int i = 0; i < SPANS; i++)
        spans[i] = (struct span){(char *)data[i], i == 2 ? 0 : i % 2 ? sizeof data[i] : 3 * sizeof(float)};
    for (int i = 0; i < SPANS; i++) {
        size_t count = spans[i].length / sizeof(float);
        data[i][count ? count - 1 : 0] = i ? NAN : INFINITY;
        enum finiteness expected = !count ? ALL_FINITE : i ? HAS_NAN : HAS_INFINITY;
        assert_int_equal(finiteness_of(HVD_FLOAT32, spans, SPANS, sizeof data[i]), expected);
        assert_int_equal(finiteness_of(HVD_FLOAT32, spans, SPANS, sizeof data[i] - 1),
                         count == LENGTH ? ALL_FINITE : expected);
        data[i][count ? count - 1 : 0] = 0;
    }
}
