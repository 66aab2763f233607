/* adasum.c - Adasum's dot products and weighted sums as plain loops that the compiler vectorises. Pure
 * functions; any thread. Half types are converted to float32 in blocks that stay in the innermost cache. */
#include "device/adasum.h"

#include "device/kernel.h"

#include <string.h>

#define BLOCK 1024 /* elements of a half type */

/* Partial sums, in two registers each, as the compiler may not reorder the additions of one sum. The
 * conversions are written out: the compiler does not find the instruction for __builtin_convertvector. */
#define LANES 8
typedef double lanes __attribute__((vector_size(LANES / 2 * sizeof(double))));
#define FOUR(from)                                                                                           \
    {                                                                                                        \
        (from)[0], (from)[1], (from)[2], (from)[3]                                                           \
    }

/* ---- float32, float64 ------------------------------------------------------------------------------ */

#define MULTIPLY(name, type)                                                                                 \
    KERNEL static void multiply_##name(const void *lower, const void *upper, size_t elements,                \
                                       struct products *sum)                                                 \
    {                                                                                                        \
        const type *a = lower, *b = upper;                                                                   \
        type rest[2][LANES] = {0};                                                                           \
        lanes aa = {0}, bb = {0}, ab = {0}, cc = {0}, dd = {0}, cd = {0};                                    \
        for (size_t n = LANES; elements; elements -= n, a += n, b += n) {                                    \
            if (elements < LANES) {                                                                          \
                n = elements;                                                                                \
                a = memcpy(rest[0], a, n * sizeof *a);                                                       \
                b = memcpy(rest[1], b, n * sizeof *b);                                                       \
            }                                                                                                \
            lanes p = FOUR(a), q = FOUR(b), r = FOUR(a + 4), s = FOUR(b + 4);                                \
            aa += p * p;                                                                                     \
            bb += q * q;                                                                                     \
            ab += p * q;                                                                                     \
            cc += r * r;                                                                                     \
            dd += s * s;                                                                                     \
            cd += r * s;                                                                                     \
        }                                                                                                    \
        for (int lane = 0; lane < LANES; lane++) {                                                           \
            sum->lower += lane < 4 ? aa[lane] : cc[lane - 4];                                                \
            sum->upper += lane < 4 ? bb[lane] : dd[lane - 4];                                                \
            sum->mixed += lane < 4 ? ab[lane] : cd[lane - 4];                                                \
        }                                                                                                    \
    }

#define ADD(name, type)                                                                                      \
    KERNEL static void add_##name(void *result, const void *lower, const void *upper, size_t elements,       \
                                  double factor_of_lower, double factor_of_upper)                            \
    {                                                                                                        \
        type *to = result, p = (type)factor_of_lower, q = (type)factor_of_upper;                             \
        const type *a = lower, *b = upper;                                                                   \
        KERNEL_LOOP                                                                                          \
        for (size_t i = 0; i < elements; i++)                                                                \
            to[i] = ONE_NAN(a[i] * p + b[i] * q);                                                            \
    }

MULTIPLY(FLOAT32, float)
MULTIPLY(FLOAT64, double)
ADD(FLOAT32, float)
ADD(FLOAT64, double)

/* ---- half types ------------------------------------------------------------------------------------- */

static void multiply_halves(hvd_dtype dtype, const char *a, const char *b, size_t elements,
                            struct products *sum)
{
    convert_fn widen = kernels_of(dtype)->widen;
    float x[BLOCK], y[BLOCK];
    size_t size = hvd_dtype_size(dtype);
    for (size_t n; elements; elements -= n, a += n * size, b += n * size) {
        n = elements < BLOCK ? elements : BLOCK;
        widen(x, a, n);
        widen(y, b, n);
        multiply_FLOAT32(x, y, n, sum);
    }
}

static void add_halves(hvd_dtype dtype, char *to, const char *a, const char *b, size_t elements, double p,
                       double q)
{
    const struct kernels *kernels = kernels_of(dtype);
    float x[BLOCK], y[BLOCK];
    size_t size = hvd_dtype_size(dtype);
    for (size_t n; elements; elements -= n, a += n * size, b += n * size, to += n * size) {
        n = elements < BLOCK ? elements : BLOCK;
        kernels->widen(x, a, n);
        kernels->widen(y, b, n);
        add_FLOAT32(x, x, y, n, p, q);
        kernels->narrow(to, x, n);
    }
}

/* ---- any type of floats ----------------------------------------------------------------------------- */

void adasum_multiply(hvd_dtype dtype, const void *lower, const void *upper, size_t elements,
                     struct products *sum)
{
    if (dtype == HVD_FLOAT32)
        multiply_FLOAT32(lower, upper, elements, sum);
    else if (dtype == HVD_FLOAT64)
        multiply_FLOAT64(lower, upper, elements, sum);
    else
        multiply_halves(dtype, lower, upper, elements, sum);
}

void adasum_add(hvd_dtype dtype, void *result, const void *lower, const void *upper, size_t elements,
                double factor_of_lower, double factor_of_upper)
{
    if (dtype == HVD_FLOAT32)
        add_FLOAT32(result, lower, upper, elements, factor_of_lower, factor_of_upper);
    else if (dtype == HVD_FLOAT64)
        add_FLOAT64(result, lower, upper, elements, factor_of_lower, factor_of_upper);
    else
        add_halves(dtype, result, lower, upper, elements, factor_of_lower, factor_of_upper);
}
