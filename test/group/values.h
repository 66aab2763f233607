/* values.h - numbers of every element type, and what ranks put into their tensors. */
#ifndef HVD_TEST_VALUES_H
#define HVD_TEST_VALUES_H

#include "group.h"

#include "base/types.h"

#include <math.h>

struct type_row {
    hvd_dtype dtype;
    double (*get)(const void *data, size_t i);
    void (*put)(void *data, size_t i, double value);
};

/* Halves of small integers: exact by construction, so shifting is enough. */
static inline float half_bits_to_float(uint16_t bits, int exponent_bits)
{
    int fraction_bits = 15 - exponent_bits;
    int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    float value = 1 + (float)(bits & ((1 << fraction_bits) - 1)) / (float)(1 << fraction_bits);
    int bias = (1 << (exponent_bits - 1)) - 1;
    if (!exponent)
        return 0;
    for (; exponent > bias; exponent--)
        value *= 2;
    for (; exponent < bias; exponent++)
        value /= 2;
    return bits & 0x8000 ? -value : value;
}

static inline uint16_t float_to_half_bits(double value, int exponent_bits)
{
    int fraction_bits = 15 - exponent_bits;
    int exponent = (1 << (exponent_bits - 1)) - 1;
    uint16_t sign = value < 0 ? 0x8000 : 0;
    value = value < 0 ? -value : value;
    if (value == 0)
        return 0;
    for (; value >= 2; exponent++)
        value /= 2;
    for (; value < 1; exponent--)
        value *= 2;
    return (uint16_t)(sign | exponent << fraction_bits | (int)((value - 1) * (1 << fraction_bits)));
}

#define EXPONENT_FLOAT16  5
#define EXPONENT_BFLOAT16 8

/* Complex numbers: the real part; an imaginary one is wrong. */
#define GET_logical(name, storage, value) (value)
#define GET_integer(name, storage, value) ((double)(value))
#define GET_real(name, storage, value)    (value)
#define GET_half(name, storage, value)    half_bits_to_float(value, EXPONENT_##name)
#define GET_complex(name, storage, value) ((value) == (double)(value) ? (double)(value) : NAN)

#define PUT_logical(name, storage, value) ((value) != 0)
#define PUT_integer(name, storage, value) ((storage)(value))
#define PUT_real(name, storage, value)    ((storage)(value))
#define PUT_half(name, storage, value)    float_to_half_bits(value, EXPONENT_##name)
#define PUT_complex(name, storage, value) ((storage)(value))

#define DTYPE(name, text, storage, compute, family, ...)                                                     \
    static double get_##name(const void *data, size_t i)                                                     \
    {                                                                                                        \
        return GET_##family(name, storage, ((const storage *)data)[i]);                                      \
    }                                                                                                        \
    static void put_##name(void *data, size_t i, double value)                                               \
    {                                                                                                        \
        ((storage *)data)[i] = PUT_##family(name, storage, value);                                           \
    }
#include "base/dtypes.def"
#undef DTYPE

static const struct type_row types[] = {
#define DTYPE(name, ...) {HVD_##name, get_##name, put_##name},
#include "base/dtypes.def"
#undef DTYPE
};
enum { TYPES = sizeof types / sizeof *types };

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

static inline bool is_integer(hvd_dtype dtype)
{
    return dtype < HVD_FLOAT16 || dtype == HVD_UINT32 || dtype == HVD_UINT64;
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

static inline void check_value(const struct type_row *type, const void *data, size_t i, double expected,
                               const char *name)
{
    double value = type->get(data, i);
    double tolerance = type->dtype == HVD_BFLOAT16 ? 0.01 : type->dtype == HVD_FLOAT16 ? 0.002 : 1e-6;
    double error = value > expected ? value - expected : expected - value;
    CHECK(error <= tolerance * (expected > 1 ? expected : 1), "%s: element %zu is %g, not %g", name, i, value,
          expected);
}

#endif
