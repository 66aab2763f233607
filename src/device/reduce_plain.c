/* reduce_plain.c - kernels of the integers and of float32 and float64: plain loops that the compiler
 * vectorises, expanded from dtypes.def. */
#include "device/kernel.h"

#include <stdint.h>

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
    const struct kernels kernels_##name = {sum_##name, min_##name, max_##name, product_##name, scale_##name};

/* ---- integers: sums and products wrap around ------------------------------------------------------- */

#define HIGHEST(type) ((type)-1 < 1 ? (type)(((uint64_t)1 << (8 * sizeof(type) - 1)) - 1) : (type)-1)
#define LOWEST(type)  ((type)~HIGHEST(type))

/* Integers of 32 bits and less divide exactly in float64 too, and faster. */
#define SCALE_INTEGER(function, type)                                                                        \
    KERNEL static void function(void *result, const void *source, size_t elements, double factor,            \
                                int64_t divisor)                                                             \
    {                                                                                                        \
        type *to = result;                                                                                   \
        const type *from = source;                                                                           \
        if (factor == 1 && sizeof(type) == 8) {                                                              \
            KERNEL_LOOP                                                                                      \
            for (size_t i = 0; i < elements; i++)                                                            \
                to[i] = (type)(from[i] / (type)divisor);                                                     \
            return;                                                                                          \
        }                                                                                                    \
        KERNEL_LOOP                                                                                          \
        for (size_t i = 0; i < elements; i++) {                                                              \
            double value = (double)from[i] * factor / (double)divisor;                                       \
            to[i] = value >= (double)HIGHEST(type) ? HIGHEST(type)                                           \
                    : value > (double)LOWEST(type) ? (type)value                                             \
                                                   : LOWEST(type);                                           \
        }                                                                                                    \
    }

#define KERNELS_integer(name, type)                                                                          \
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

#define KERNELS_real(name, type)                                                                             \
    COMBINE(sum_##name, type, ONE_NAN(a + b))                                                                \
    COMBINE(min_##name, type, (a < b) | (a != a) ? a : b)                                                    \
    COMBINE(max_##name, type, (a > b) | (a != a) ? a : b)                                                    \
    COMBINE(product_##name, type, ONE_NAN(a *b))                                                             \
    SCALE_REAL(scale_##name, type)                                                                           \
    TABLE(name)

/* ---- the rows ------------------------------------------------------------------------------------- */

#define KERNELS_half(name, type) /* reduce_half.c */

#define DTYPE(name, text, storage, compute, family) KERNELS_##family(name, storage)
#include "base/dtypes.def"
#undef DTYPE
