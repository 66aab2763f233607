/* reduce_plain.c - kernels of all types except the 16-bit floats: plain loops that the compiler vectorises,
 * expanded from dtypes.def. Pure functions; any thread. */
#include "device/kernel.h"

#include <stdint.h>
#include <string.h>

#define COMBINE(function, type, expression)                                                                  \
    KERNEL static void function(void *result, const void *first, const void *second, size_t elements)        \
    {                                                                                                        \
        type *to = result;                                                                                   \
        const type *from_a = first, *from_b = second;                                                        \
        KERNEL_LOOP                                                                                          \
        for (size_t i = 0; i < elements; i++) {                                                              \
            type a = from_a[i], b = from_b[i];                                                               \
            to[i] = (type)(expression);                                                                      \
        }                                                                                                    \
    }

#define TABLE(name, multiply)                                                                                \
    const struct kernels kernels_##name = {.sum = sum_##name,                                                \
                                           .min = min_##name,                                                \
                                           .max = max_##name,                                                \
                                           .product = multiply,                                              \
                                           .scale = scale_##name};

/* ---- integers: sums and products wrap around ------------------------------------------------------- */

#define HIGHEST(type) ((type)-1 < 1 ? (type)(((uint64_t)1 << (8 * sizeof(type) - 1)) - 1) : (type)-1)
#define LOWEST(type)  ((type)~HIGHEST(type))

/* Dividing is slow, so an average multiplies; every quotient is exact. Integers of 2 bytes are multiplied by
 * slightly more than 1 / divisor: a quotient that is not whole is at least 1 / divisor below the next whole
 * number, and the excess is a small part of that. */
#define DIVIDE_SHORT(name, type)                                                                             \
    KERNEL static void divide_##name(type *to, const type *from, size_t elements, int64_t divisor)           \
    {                                                                                                        \
        float by = 1.0f / (float)divisor * (1 + 0x1p-21f);                                                   \
        KERNEL_LOOP                                                                                          \
        for (size_t i = 0; i < elements; i++)                                                                \
            to[i] = (type)((float)from[i] * by);                                                             \
    }

DIVIDE_SHORT(UINT16, uint16_t)
DIVIDE_SHORT(INT16, int16_t)

/* Integers of 4 and 8 bytes: a float with fewer digits than the integer estimates the quotient from below;
 * the rest, less than divisor + 2^15, is then divided by a slightly larger factor. `half` is 1 for unsigned
 * types, which are converted as signed ones. */
#define DIVIDE_LONG(name, type, sign, real, digits, half)                                                    \
    KERNEL static void divide_##name(type *to, const type *from, size_t elements, int64_t divisor)           \
    {                                                                                                        \
        real low = (real)1 / (real)divisor * (1 - (real)8 / ((uint64_t)1 << digits)) * (1 << half);          \
        real high = (real)1 / (real)divisor * (1 + (real)2 / ((uint64_t)1 << digits));                       \
        type by = (type)divisor;                                                                             \
        if (divisor >> 21) { /* more than a float's digits distinguish */                                    \
            for (size_t i = 0; i < elements; i++)                                                            \
                to[i] = from[i] / by;                                                                        \
            return;                                                                                          \
        }                                                                                                    \
        KERNEL_LOOP                                                                                          \
        for (size_t i = 0; i < elements; i++) {                                                              \
            type estimate = (type)(sign)((real)(sign)(from[i] >> half) * low);                               \
            type rest = from[i] - estimate * by;                                                             \
            to[i] = estimate + (type)(sign)((real)(sign)rest * high);                                        \
        }                                                                                                    \
    }

DIVIDE_LONG(UINT32, uint32_t, int32_t, float, 24, 1)
DIVIDE_LONG(INT32, int32_t, int32_t, float, 24, 0)
DIVIDE_LONG(UINT64, uint64_t, int64_t, double, 53, 1)
DIVIDE_LONG(INT64, int64_t, int64_t, double, 53, 0)

/* Bytes are divided in pairs, by the upper halves of 16-bit products. `divide` divides one pair. */
#define DIVIDE_BYTES(name, type, comm, power, divide)                                                        \
    KERNEL static void divide_##name(type *to, const type *from, size_t elements, int64_t divisor)           \
    {                                                                                                        \
        comm by = (comm)(power / divisor + 1);                                                               \
        uint16_t pair;                                                                                       \
        KERNEL_LOOP                                                                                          \
        for (size_t i = 0; i < elements / 2; i++) {                                                          \
            memcpy(&pair, from + 2 * i, sizeof pair);                                                        \
            pair = divide(pair, by);                                                                         \
            memcpy(to + 2 * i, &pair, sizeof pair);                                                          \
        }                                                                                                    \
        if (elements % 2)                                                                                    \
            to[elements - 1] = (type)(from[elements - 1] / divisor);                                         \
    }

static inline uint16_t divide_pair(uint16_t pair, uint16_t by)
{
    uint16_t low = pair & 0xff, high = pair & 0xff00;
    low = (uint16_t)((uint32_t)low * by >> 16);
    high = (uint16_t)((uint32_t)high * by >> 16);
    return low | (high & 0xff00);
}

/* Each element is doubled, as the factor has 15 bits; the quotient is rounded down, then towards zero. */
static inline uint16_t divide_signed_pair(uint16_t pair, int16_t by)
{
    int16_t low = (int16_t)((int16_t)(pair << 8) >> 7), high = (int16_t)((int16_t)(pair & 0xff00) >> 7);
    int16_t low_down = (int16_t)((int32_t)low * by >> 16), high_down = (int16_t)((int32_t)high * by >> 16);
    uint16_t low_part = (uint16_t)(low_down + (low < 0)), high_part = (uint16_t)(high_down + (high < 0));
    return (uint16_t)((low_part & 0xff) | (uint16_t)(high_part << 8));
}

DIVIDE_BYTES(UINT8, uint8_t, uint16_t, 65535, divide_pair)
DIVIDE_BYTES(INT8, int8_t, int16_t, 32768, divide_signed_pair)

#define SCALE_INTEGER(name, type)                                                                            \
    KERNEL static void scale_##name(void *result, const void *source, size_t elements, double factor,        \
                                    int64_t divisor)                                                         \
    {                                                                                                        \
        type *to = result;                                                                                   \
        const type *from = source;                                                                           \
        if (factor == 1 && divisor > 1) {                                                                    \
            divide_##name(to, from, elements, divisor);                                                      \
        } else if (factor == 1 && to != from) {                                                              \
            memcpy(to, from, elements * sizeof *to);                                                         \
        }                                                                                                    \
        if (factor == 1)                                                                                     \
            return;                                                                                          \
        KERNEL_LOOP                                                                                          \
        for (size_t i = 0; i < elements; i++) {                                                              \
            double product = (double)from[i] * factor;                                                       \
            double value = divisor == 1 ? product : product / (double)divisor;                               \
            to[i] = value >= (double)HIGHEST(type) ? HIGHEST(type)                                           \
                    : value > (double)LOWEST(type) ? (type)value                                             \
                                                   : LOWEST(type);                                           \
        }                                                                                                    \
    }

/* Bytes are multiplied in pairs, as no instruction multiplies bytes. */
KERNEL static void product_bytes(void *result, const void *first, const void *second, size_t elements)
{
    uint8_t *to = result;
    const uint8_t *a = first, *b = second;
    uint16_t p, q;
    KERNEL_LOOP
    for (size_t i = 0; i < elements / 2; i++) {
        memcpy(&p, a + 2 * i, sizeof p);
        memcpy(&q, b + 2 * i, sizeof q);
        p = (uint16_t)(((uint32_t)p * q & 0xff) | (uint16_t)((p >> 8) * (q & 0xff00)));
        memcpy(to + 2 * i, &p, sizeof p);
    }
    if (elements % 2)
        to[elements - 1] = (uint8_t)(a[elements - 1] * b[elements - 1]);
}

#define KERNELS_integer(name, type, compute)                                                                 \
    COMBINE(sum_##name, type, (uint64_t)a + (uint64_t)b)                                                     \
    COMBINE(min_##name, type, a < b ? a : b)                                                                 \
    COMBINE(max_##name, type, a > b ? a : b)                                                                 \
    COMBINE(product_##name, type, (uint64_t)a *(uint64_t)b)                                                  \
    SCALE_INTEGER(name, type)                                                                                \
    TABLE(name, sizeof(type) == 1 ? product_bytes : product_##name)

/* ---- real numbers: a NaN on either side is the result ---------------------------------------------- */

#define SCALE_REAL(function, type)                                                                           \
    KERNEL static void function(void *result, const void *source, size_t elements, double factor,            \
                                int64_t divisor)                                                             \
    {                                                                                                        \
        type *to = result;                                                                                   \
        const type *from = source;                                                                           \
        type by = (type)(factor / (double)divisor);                                                          \
        KERNEL_LOOP                                                                                          \
        for (size_t i = 0; i < elements; i++)                                                                \
            to[i] = ONE_NAN(from[i] * by);                                                                   \
    }

#define KERNELS_real(name, type, compute)                                                                    \
    COMBINE(sum_##name, type, ONE_NAN(a + b))                                                                \
    COMBINE(min_##name, type, ((a < b) | (a != a)) ? a : b)                                                  \
    COMBINE(max_##name, type, ((a > b) | (a != a)) ? a : b)                                                  \
    COMBINE(product_##name, type, ONE_NAN(a *b))                                                             \
    SCALE_REAL(scale_##name, type)                                                                           \
    TABLE(name, product_##name)

/* ---- bool: any byte but 0 is true ------------------------------------------------------------------- */

#define KERNELS_logical(name, type, compute)                                                                 \
    COMBINE(or_##name, type, (a | b) != 0)                                                                   \
    COMBINE(and_##name, type, (a != 0) & (b != 0))                                                           \
    const struct kernels kernels_##name = {                                                                  \
        .sum = or_##name, .min = and_##name, .max = or_##name, .product = and_##name};

/* ---- complex numbers: sums and factors go by their parts --------------------------------------------- */

/* The signs of the products that make up a part are factors that the compiler does not know: GCC 12 makes
 * fused operations, which round differently, of a difference next to a sum, although the standard that we
 * compile for forbids it. */
static volatile const int plus = 1, minus = -1;

#define KERNELS_complex(name, type, compute)                                                                 \
    COMBINE(sum_parts_##name, compute, ONE_NAN(a + b))                                                       \
    SCALE_REAL(scale_parts_##name, compute)                                                                  \
    static void sum_##name(void *result, const void *first, const void *second, size_t elements)             \
    {                                                                                                        \
        sum_parts_##name(result, first, second, 2 * elements);                                               \
    }                                                                                                        \
    static void scale_##name(void *result, const void *source, size_t elements, double factor,               \
                             int64_t divisor)                                                                \
    {                                                                                                        \
        scale_parts_##name(result, source, 2 * elements, factor, divisor);                                   \
    }                                                                                                        \
    KERNEL static void product_##name(void *result, const void *first, const void *second, size_t elements)  \
    {                                                                                                        \
        compute *to = result, add = (compute)plus, subtract = (compute)minus;                                \
        const compute *a = first, *b = second;                                                               \
        KERNEL_LOOP                                                                                          \
        for (size_t i = 0; i < 2 * elements; i += 2) {                                                       \
            compute real = a[i] * b[i] + subtract * (a[i + 1] * b[i + 1]);                                   \
            compute imaginary = a[i] * b[i + 1] + add * (a[i + 1] * b[i]);                                   \
            to[i] = ONE_NAN(real);                                                                           \
            to[i + 1] = ONE_NAN(imaginary);                                                                  \
        }                                                                                                    \
    }                                                                                                        \
    const struct kernels kernels_##name = {                                                                  \
        .sum = sum_##name, .product = product_##name, .scale = scale_##name};

/* ---- the rows ------------------------------------------------------------------------------------- */

#define KERNELS_half(name, type, compute) /* reduce_half.c */

#define DTYPE(name, text, storage, compute, family, ...) KERNELS_##family(name, storage, compute)
#include "base/dtypes.def"
#undef DTYPE
