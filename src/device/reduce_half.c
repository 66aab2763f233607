/* reduce_half.c - kernels of the 16-bit floats, which compute in float32 and round to nearest even: bfloat16,
 * two elements from one 32-bit word, which the compiler vectorises well; and float16 without its
 * instructions, bit for bit as the hardware would. A NaN stays one. */
#include "device/half.h"
#include "device/kernel.h"

INLINE float sum(float a, float b)
{
    return ONE_NAN(a + b);
}

INLINE float product(float a, float b)
{
    return ONE_NAN(a * b);
}

INLINE float min(float a, float b)
{
    return ((a < b) | (a != a)) ? a : b;
}

INLINE float max(float a, float b)
{
    return ((a > b) | (a != a)) ? a : b;
}

#define CONVERSIONS(name)                                                                                    \
    KERNEL static void widen_##name(float *result, const uint16_t *halves, size_t elements)                  \
    {                                                                                                        \
        KERNEL_LOOP                                                                                          \
        for (size_t i = 0; i < elements; i++)                                                                \
            result[i] = name##_value(halves[i]);                                                             \
    }                                                                                                        \
    KERNEL static void narrow_##name(uint16_t *result, const float *values, size_t elements)                 \
    {                                                                                                        \
        KERNEL_LOOP                                                                                          \
        for (size_t i = 0; i < elements; i++)                                                                \
            result[i] = name##_of(values[i]);                                                                \
    }

CONVERSIONS(bfloat16)
CONVERSIONS(float16)

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

#define COMBINE_BFLOAT16(operation)                                                                          \
    KERNEL static void operation##_bfloat16(void *result, const void *first, const void *second,             \
                                            size_t elements)                                                 \
    {                                                                                                        \
        char *to = result;                                                                                   \
        const char *a = first, *b = second;                                                                  \
        KERNEL_LOOP                                                                                          \
        for (size_t i = 0; i < elements / 2; i++) {                                                          \
            uint32_t p = load_pair(a + 4 * i), q = load_pair(b + 4 * i);                                     \
            store_pair(to + 4 * i, operation(low_of(p), low_of(q)), operation(high_of(p), high_of(q)));      \
        }                                                                                                    \
        if (elements % 2) {                                                                                  \
            size_t end = elements - 1;                                                                       \
            float p = bfloat16_value(((const uint16_t *)first)[end]);                                        \
            float q = bfloat16_value(((const uint16_t *)second)[end]);                                       \
            ((uint16_t *)result)[end] = bfloat16_of(operation(p, q));                                        \
        }                                                                                                    \
    }

COMBINE_BFLOAT16(sum)
COMBINE_BFLOAT16(min)
COMBINE_BFLOAT16(max)
COMBINE_BFLOAT16(product)

KERNEL static void scale_bfloat16(void *result, const void *source, size_t elements, double factor,
                                  int64_t divisor)
{
    uint16_t *to = result;
    const uint16_t *from = source;
    float by = (float)(factor / (double)divisor);
    KERNEL_LOOP
    for (size_t i = 0; i < elements; i++)
        to[i] = bfloat16_of(product(bfloat16_value(from[i]), by));
}

const struct kernels kernels_BFLOAT16 = {sum_bfloat16,   min_bfloat16,   max_bfloat16,   product_bfloat16,
                                         scale_bfloat16, widen_bfloat16, narrow_bfloat16};

/* ---- float16 --------------------------------------------------------------------------------------- */

#define COMBINE_FLOAT16(operation)                                                                           \
    KERNEL static void operation##_float16(void *result, const void *first, const void *second,              \
                                           size_t elements)                                                  \
    {                                                                                                        \
        uint16_t *to = result;                                                                               \
        const uint16_t *a = first, *b = second;                                                              \
        KERNEL_LOOP                                                                                          \
        for (size_t i = 0; i < elements; i++)                                                                \
            to[i] = float16_of(operation(float16_value(a[i]), float16_value(b[i])));                         \
    }

COMBINE_FLOAT16(sum)
COMBINE_FLOAT16(min)
COMBINE_FLOAT16(max)
COMBINE_FLOAT16(product)

KERNEL static void scale_float16(void *result, const void *source, size_t elements, double factor,
                                 int64_t divisor)
{
    uint16_t *to = result;
    const uint16_t *from = source;
    float by = (float)(factor / (double)divisor);
    KERNEL_LOOP
    for (size_t i = 0; i < elements; i++)
        to[i] = float16_of(product(float16_value(from[i]), by));
}

const struct kernels kernels_FLOAT16 = {sum_float16,   min_float16,   max_float16,   product_float16,
                                        scale_float16, widen_float16, narrow_float16};
