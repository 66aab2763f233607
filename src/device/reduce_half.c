/* reduce_half.c - kernels of the 16-bit floats, which compute in float32 and round to nearest even: bfloat16,
 * two elements from one 32-bit word, which the compiler vectorises well; and float16 without its
 * instructions, bit for bit as the hardware would. A NaN stays a NaN.
 * Pure functions; any thread. */
#include "device/kernel.h"

#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

INLINE float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- bfloat16: the upper half of a float32 --------------------------------------------------------- */

/* Returns the bfloat16 in the upper half; the lower half has no meaning. No NaN is rounded away: the lower
 * half of every NaN here is zero, as it is ONE_NAN or was a bfloat16. */
INLINE uint32_t bfloat16_round(float value)
{
    uint32_t bits = bits_of(value);
    return bits + 0x7fff + (bits >> 16 & 1);
}

INLINE uint16_t bfloat16_of(float value)
{
    return (uint16_t)(bfloat16_round(value) >> 16);
}

INLINE float bfloat16_value(uint16_t half)
{
    return float_of((uint32_t)half << 16);
}

/* ---- float16: 5 bits of exponent, 10 of fraction ---------------------------------------------------- */

INLINE float float16_value(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t rest = (uint32_t)(half & 0x7fff) << 13;
    uint32_t exponent = rest & 0x0f800000;
    uint32_t normal = rest + 0x38000000;                                         /* 127 - 15 */
    uint32_t special = (rest + 0x70000000) | (rest > 0x0f800000 ? 0x400000 : 0); /* infinite; NaN, quiet */
    uint32_t subnormal = bits_of(float_of(rest + 0x38800000) - float_of(0x38800000)); /* 2^-14 */
    uint32_t bits = exponent == 0x0f800000 ? special : exponent == 0 ? subnormal : normal;
    return float_of(bits | sign);
}

INLINE uint16_t float16_of(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t sign = bits & 0x80000000;
    bits ^= sign;
    /* Adding a float whose last bit is float16's smallest step makes the adder round at that step. */
    uint32_t step = ((127 - 15) + (23 - 10) + 1) << 23;
    uint32_t subnormal = bits_of(float_of(bits) + float_of(step)) - step;
    uint32_t normal = (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13;
    uint32_t special = bits > 0x7f800000 ? 0x7e00 | (bits >> 13 & 0x3ff) : 0x7c00;
    uint32_t half = bits >= 0x47800000 ? special : bits < 0x38800000 ? subnormal : normal;
    return (uint16_t)(half | sign >> 16);
}

/* ---- operations ------------------------------------------------------------------------------------- */

/* The operations of kernels on two elements; two of them use the weights. */
#define OPERATION(name, value)                                                                               \
    INLINE float name(float a, float b, struct weights by)                                                   \
    {                                                                                                        \
        (void)b, (void)by;                                                                                   \
        return value;                                                                                        \
    }

OPERATION(sum, ONE_NAN(a + b))
OPERATION(product, ONE_NAN(a *b))
OPERATION(min, ((a < b) | (a != a)) ? a : b)
OPERATION(max, ((a > b) | (a != a)) ? a : b)
OPERATION(weighed, ONE_NAN(a *by.a + b * by.b))
OPERATION(scaled, ONE_NAN(a *by.a))

typedef float (*operation_fn)(float a, float b, struct weights by);

/* The kernels of a type that has a function `loop`, which is inlined into each. */
#define COMBINE(loop, type, operation)                                                                       \
    KERNEL static void operation##_##type(void *result, const void *a, const void *b, size_t elements)       \
    {                                                                                                        \
        loop(result, a, b, elements, operation, (struct weights){0});                                        \
    }

#define COMBINATIONS(loop, type)                                                                             \
    COMBINE(loop, type, sum)                                                                                 \
    COMBINE(loop, type, min)                                                                                 \
    COMBINE(loop, type, max)                                                                                 \
    COMBINE(loop, type, product)                                                                             \
    KERNEL static void weigh_##type(void *result, const void *a, const void *b, size_t elements, float of_a, \
                                    float of_b)                                                              \
    {                                                                                                        \
        loop(result, a, b, elements, weighed, (struct weights){of_a, of_b});                                 \
    }                                                                                                        \
    KERNEL static void scale_##type(void *result, const void *source, size_t elements, double factor,        \
                                    int64_t divisor)                                                         \
    {                                                                                                        \
        loop(result, source, source, elements, scaled,                                                       \
             (struct weights){.a = (float)(factor / (double)divisor)});                                      \
    }

#define TABLE(type)                                                                                          \
    {                                                                                                        \
        sum_##type, min_##type, max_##type, product_##type, scale_##type, weigh_##type, widen_##type,        \
            narrow_##type                                                                                    \
    }

#define CONVERSION(linkage, function, to, from, value)                                                       \
    KERNEL linkage void function(void *results, const void *sources, size_t elements)                        \
    {                                                                                                        \
        to *result = results;                                                                                \
        const from *source = sources;                                                                        \
        KERNEL_LOOP                                                                                          \
        for (size_t i = 0; i < elements; i++)                                                                \
            result[i] = value;                                                                               \
    }

#define CONVERSIONS(linkage, name, type)                                                                     \
    CONVERSION(static, widen_##name, float, type, name##_value(source[i]))                                   \
    CONVERSION(linkage, narrow_##name, type, float, name##_of(source[i]))

CONVERSIONS(, bfloat16, uint16_t)
CONVERSIONS(static, float16, uint16_t)

/* ---- bfloat16 -------------------------------------------------------------------------------------- */

INLINE uint32_t load_pair(const char *from)
{
    uint32_t pair;
    memcpy(&pair, from, sizeof pair);
    return pair;
}

INLINE void store_pair(char *to, float low, float high)
{
    uint32_t pair = bfloat16_round(low) >> 16 | (bfloat16_round(high) & 0xffff0000);
    memcpy(to, &pair, sizeof pair);
}

INLINE float low_of(uint32_t pair)
{
    return float_of(pair << 16);
}

INLINE float high_of(uint32_t pair)
{
    return float_of(pair & 0xffff0000);
}

INLINE void loop_bfloat16(void *result, const void *first, const void *second, size_t elements,
                          operation_fn operation, struct weights by)
{
    char *to = result;
    const char *a = first, *b = second;
    KERNEL_LOOP
    for (size_t i = 0; i < elements / 2; i++) {
        uint32_t p = load_pair(a + 4 * i), q = load_pair(b + 4 * i);
        store_pair(to + 4 * i, operation(low_of(p), low_of(q), by), operation(high_of(p), high_of(q), by));
    }
    if (elements % 2) {
        size_t end = elements - 1;
        float p = bfloat16_value(((const uint16_t *)first)[end]);
        float q = bfloat16_value(((const uint16_t *)second)[end]);
        ((uint16_t *)result)[end] = bfloat16_of(operation(p, q, by));
    }
}

COMBINATIONS(loop_bfloat16, bfloat16)

const struct kernels kernels_BFLOAT16 = TABLE(bfloat16);

/* ---- float16 --------------------------------------------------------------------------------------- */

INLINE void loop_float16(void *result, const void *first, const void *second, size_t elements,
                         operation_fn operation, struct weights by)
{
    uint16_t *to = result;
    const uint16_t *a = first, *b = second;
    KERNEL_LOOP
    for (size_t i = 0; i < elements; i++)
        to[i] = float16_of(operation(float16_value(a[i]), float16_value(b[i]), by));
}

COMBINATIONS(loop_float16, float16)

const struct kernels kernels_FLOAT16 = TABLE(float16);
