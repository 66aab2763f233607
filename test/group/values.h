/* values.h - numbers of every element type, and what ranks put into their tensors. */
#ifndef HVD_TEST_VALUES_H
#define HVD_TEST_VALUES_H

#include "group.h"

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

#define PLAIN_TYPE(name, type)                                                                               \
    static double get_##name(const void *data, size_t i)                                                     \
    {                                                                                                        \
        return (double)((const type *)data)[i];                                                              \
    }                                                                                                        \
    static void put_##name(void *data, size_t i, double value)                                               \
    {                                                                                                        \
        ((type *)data)[i] = (type)value;                                                                     \
    }
PLAIN_TYPE(UINT8, uint8_t)
PLAIN_TYPE(INT8, int8_t)
PLAIN_TYPE(INT32, int32_t)
PLAIN_TYPE(INT64, int64_t)
PLAIN_TYPE(FLOAT32, float)
PLAIN_TYPE(FLOAT64, double)

#define HALF_TYPE(name, exponent_bits)                                                                       \
    static double get_##name(const void *data, size_t i)                                                     \
    {                                                                                                        \
        return half_bits_to_float(((const uint16_t *)data)[i], exponent_bits);                               \
    }                                                                                                        \
    static void put_##name(void *data, size_t i, double value)                                               \
    {                                                                                                        \
        ((uint16_t *)data)[i] = float_to_half_bits(value, exponent_bits);                                    \
    }
HALF_TYPE(FLOAT16, 5)
HALF_TYPE(BFLOAT16, 8)

static const struct type_row types[] = {
#define DTYPE(name, ...) {HVD_##name, get_##name, put_##name},
#include "base/dtypes.def"
#undef DTYPE
};
enum { TYPES = sizeof types / sizeof *types };

/* What rank `rank` puts at element i: 1 or 2 for products, 0 ... 3 else (sums over 8 ranks stay below 127).
 */
static inline double value_at(hvd_reduction reduction, int rank, size_t i)
{
    if (reduction == HVD_PRODUCT)
        return (i + (size_t)rank) % 3 ? 1 : 2;
    return (double)((i * 7 + (size_t)rank * 3) % 4);
}

static inline double expected_at(hvd_reduction reduction, int size, size_t i)
{
    double result = value_at(reduction, 0, i);
    for (int rank = 1; rank < size; rank++) {
        double value = value_at(reduction, rank, i);
        if (reduction == HVD_SUM || reduction == HVD_AVERAGE)
            result += value;
        else if (reduction == HVD_PRODUCT)
            result *= value;
        else if ((reduction == HVD_MIN) == (value < result))
            result = value;
    }
    return result;
}

static inline bool is_integer(hvd_dtype dtype)
{
    return dtype == HVD_UINT8 || dtype == HVD_INT8 || dtype == HVD_INT32 || dtype == HVD_INT64;
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
