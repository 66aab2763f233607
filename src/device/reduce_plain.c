/* reduce_plain.c - kernels of all types but the 16-bit floats: plain loops that the compiler vectorises,
 * expanded from dtypes.def. */
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

#define TABLE(name)                                                                                          \
    const struct kernels kernels_##name = {.sum = sum_##name,                                                \
                                           .min = min_##name,                                                \
                                           .max = max_##name,                                                \
                                           .product = product_##name,                                        \
                                           .scale = scale_##name};

/* ---- integers: sums and products wrap around ------------------------------------------------------- */

#define HIGHEST(type) ((type)-1 < 1 ? (type)(((uint64_t)1 << (8 * sizeof(type) - 1)) - 1) : (type)-1)
#define LOWEST(type)  ((type)~HIGHEST(type))

/* Dividing is slow, so an average multiplies by a little more than 1 / divisor: quotients of a value that is
 * no multiple lie 1 / divisor or more below the next whole number, and the excess is a small part of that. */
struct divider {
    float single_precision; /* for 8 and 16 bits */
    double double_precision;
    uint64_t bits64; /* for 64 bits: after Granlund and Montgomery, "Division by invariant integers", 1994 */
    int shift;
};

__extension__ typedef unsigned __int128 wide;

/* Of 2 ... 2^24 - 1. */
static struct divider divider_of(int64_t divisor)
{
    uint64_t d = (uint64_t)divisor;
    int log = 64 - __builtin_clzll(d - 1);
    return (struct divider){.single_precision = 1.0f / (float)d * (1 + 0x1p-21f),
                            .double_precision = 1.0 / (double)d * (1 + 0x1p-50),
                            .bits64 = (uint64_t)(((((wide)1 << log) - d) << 64) / d + 1),
                            .shift = log - 1};
}

static inline uint64_t divided(uint64_t x, struct divider by)
{
    uint64_t high = (uint64_t)((wide)x * by.bits64 >> 64);
    return (high + ((x - high) >> 1)) >> by.shift;
}

/* The quotient of the magnitude, and the sign again: `sign` is 0 or -1. */
static inline uint64_t divided_signed(int64_t x, struct divider by)
{
    uint64_t sign = (uint64_t)(x >> 63);
    return (divided(((uint64_t)x ^ sign) - sign, by) ^ sign) - sign;
}

#define AVERAGE_integer(type, x, by)                                                                         \
    (sizeof(type) <= 2   ? (type)((float)(x)*by.single_precision)                                            \
     : sizeof(type) == 4 ? (type)((double)(x)*by.double_precision)                                           \
     : (type)-1 < 1      ? (type)divided_signed((int64_t)(x), by)                                            \
                         : (type)divided((uint64_t)(x), by))

#define SCALE_INTEGER(function, type)                                                                        \
    KERNEL static void function(void *result, const void *source, size_t elements, double factor,            \
                                int64_t divisor)                                                             \
    {                                                                                                        \
        type *to = result;                                                                                   \
        const type *from = source;                                                                           \
        if (factor == 1 && divisor > 1) {                                                                    \
            struct divider by = divider_of(divisor);                                                         \
            KERNEL_LOOP                                                                                      \
            for (size_t i = 0; i < elements; i++)                                                            \
                to[i] = AVERAGE_integer(type, from[i], by);                                                  \
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

#define KERNELS_integer(name, type, compute)                                                                 \
    COMBINE(sum_##name, type, (uint64_t)a + (uint64_t)b)                                                     \
    COMBINE(min_##name, type, a < b ? a : b)                                                                 \
    COMBINE(max_##name, type, a > b ? a : b)                                                                 \
    COMBINE(product_##name, type, (uint64_t)a *(uint64_t)b)                                                  \
    SCALE_INTEGER(scale_##name, type)                                                                        \
    TABLE(name)

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
            to[i] = from[i] * by;                                                                            \
    }

#define KERNELS_real(name, type, compute)                                                                    \
    COMBINE(sum_##name, type, ONE_NAN(a + b))                                                                \
    COMBINE(min_##name, type, ((a < b) | (a != a)) ? a : b)                                                  \
    COMBINE(max_##name, type, ((a > b) | (a != a)) ? a : b)                                                  \
    COMBINE(product_##name, type, ONE_NAN(a *b))                                                             \
    SCALE_REAL(scale_##name, type)                                                                           \
    TABLE(name)

/* ---- bool: any byte but 0 is true ------------------------------------------------------------------- */

#define KERNELS_logical(name, type, compute)                                                                 \
    COMBINE(or_##name, type, (a | b) != 0)                                                                   \
    COMBINE(and_##name, type, (a != 0) & (b != 0))                                                           \
    const struct kernels kernels_##name = {                                                                  \
        .sum = or_##name, .min = and_##name, .max = or_##name, .product = and_##name};

/* ---- complex numbers: sums and factors go by their parts --------------------------------------------- */

/* The two parts of a product in loops of their own: in one loop GCC 12 makes fused operations of the vectors,
 * which round differently from the rest of the loop, though the standard that we ask for forbids it. */
#define COMPLEX_BLOCK ((size_t)64)

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
        compute *to = result, real[COMPLEX_BLOCK], imaginary[COMPLEX_BLOCK];                                 \
        const compute *a = first, *b = second;                                                               \
        for (size_t n; elements; elements -= n, a += 2 * n, b += 2 * n, to += 2 * n) {                       \
            n = elements < COMPLEX_BLOCK ? elements : COMPLEX_BLOCK;                                         \
            for (size_t i = 0; i < n; i++)                                                                   \
                real[i] = a[2 * i] * b[2 * i] - a[2 * i + 1] * b[2 * i + 1];                                 \
            for (size_t i = 0; i < n; i++)                                                                   \
                imaginary[i] = a[2 * i] * b[2 * i + 1] + a[2 * i + 1] * b[2 * i];                            \
            for (size_t i = 0; i < n; i++) {                                                                 \
                to[2 * i] = ONE_NAN(real[i]);                                                                \
                to[2 * i + 1] = ONE_NAN(imaginary[i]);                                                       \
            }                                                                                                \
        }                                                                                                    \
    }                                                                                                        \
    const struct kernels kernels_##name = {                                                                  \
        .sum = sum_##name, .product = product_##name, .scale = scale_##name};

/* ---- the rows ------------------------------------------------------------------------------------- */

#define KERNELS_half(name, type, compute) /* reduce_half.c */

#define DTYPE(name, text, storage, compute, family, ...) KERNELS_##family(name, storage, compute)
#include "base/dtypes.def"
#undef DTYPE
