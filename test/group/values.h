/* values.h - numbers of every element type, and what ranks put into their tensors. */
#ifndef HVD_TEST_VALUES_H
#define HVD_TEST_VALUES_H

#include "group.h"
#include "numbers.h"

static inline void put_at(hvd_dtype dtype, void *data, size_t i, double value)
{
    number_put(dtype, (char *)data + i * hvd_dtype_size(dtype), value);
}

/* What rank `rank` puts at element i: 1 or 2 for products, 0 ... 3 else (sums over 8 ranks stay below 127);
 * of bool 0 and 1. */
static inline double value_at(hvd_dtype dtype, hvd_reduction reduction, int rank, size_t i)
{
    if (dtype == HVD_BOOL)
        return (i * 7 + (size_t)rank * 3) % 4 > 1;
    if (reduction == HVD_PRODUCT)
        return (i + (size_t)rank) % 3 ? 1 : 2;
    return (double)((i * 7 + (size_t)rank * 3) % 4);
}

/* The result, divided for averages. */
static inline double expected_at(hvd_dtype dtype, hvd_reduction reduction, int size, size_t i)
{
    double result = value_at(dtype, reduction, 0, i);
    for (int rank = 1; rank < size; rank++) {
        double value = value_at(dtype, reduction, rank, i);
        if (reduction == HVD_SUM || reduction == HVD_AVERAGE)
            result = dtype == HVD_BOOL ? result || value : result + value;
        else if (reduction == HVD_PRODUCT)
            result *= value;
        else if ((reduction == HVD_MIN) == (value < result))
            result = value;
    }
    if (reduction != HVD_AVERAGE)
        return result;
    return is_integer(dtype) ? (double)((int)result / size) : result / size;
}

static inline void check_value(hvd_dtype dtype, const void *data, size_t i, double expected, const char *name)
{
    double value = number_get(dtype, (const char *)data + i * hvd_dtype_size(dtype));
    double tolerance = dtype == HVD_BFLOAT16 ? 0.01 : dtype == HVD_FLOAT16 ? 0.002 : 1e-6;
    double error = value > expected ? value - expected : expected - value;
    CHECK(error <= tolerance * (expected > 1 ? expected : 1), "%s: element %zu is %g, not %g", name, i, value,
          expected);
}

#endif
