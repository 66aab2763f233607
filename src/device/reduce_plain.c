/* reduce_plain.c - kernels of all types but the 16-bit floats: plain loops that the compiler vectorises,
 * expanded from dtypes.def. */
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

/* Dividing whole numbers is slow. A quotient of two floats that hold both exactly is never rounded up to a
 * whole number: the next one is further away than the last bit. */
#define QUOTIENT(type, value, divisor)                                                                       \
    (sizeof(type) == 8   ? (type)((value) / (type)(divisor))                                                 \
     : sizeof(type) == 4 ? (type)((double)(value) / (double)(divisor))                                       \
                         : (type)((float)(value) / (float)(divisor)))

#define SCALE_INTEGER(function, type)                                                                        \
    KERNEL static void function(void *result, const void *source, size_t elements, double factor,            \
                                int64_t divisor)                                                             \
    {                                                                                                        \
        type *to = result;                                                                                   \
        const type *from = source;                                                                           \
        if (factor == 1) {                                                                                   \
            KERNEL_LOOP                                                                                      \
            for (size_t i = 0; i < elements; i++)                                                            \
                to[i] = QUOTIENT(type, from[i], divisor);                                                    \
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
    const struct kernels kernels_##name = {or_##name, and_##name, or_##name, and_##name, NULL};

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
    const struct kernels kernels_##name = {sum_##name, NULL, NULL, product_##name, scale_##name};

/* ---- the rows ------------------------------------------------------------------------------------- */

#define KERNELS_half(name, type, compute) /* reduce_half.c */

#define DTYPE(name, text, storage, compute, family, ...) KERNELS_##family(name, storage, compute)
#include "base/dtypes.def"
#undef DTYPE
