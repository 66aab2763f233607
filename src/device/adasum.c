/* adasum.c - see adasum.h: plain loops that the compiler vectorises, expanded from dtypes.def. */
#include "device/adasum.h"

#include "device/half.h"
#include "device/kernel.h"

#include <stdbool.h>

#define LANES 8
#define BLOCK 256 /* elements that are float64 at a time */

/* Sums under way at a time: the compiler may not reorder the additions of one. */
typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));

#define LOAD_FLOAT16(value)  float16_value(value)
#define LOAD_BFLOAT16(value) bfloat16_value(value)
#define LOAD_FLOAT32(value)  (value)
#define LOAD_FLOAT64(value)  (value)

#define STORE_FLOAT16(value)  float16_of(value)
#define STORE_BFLOAT16(value) bfloat16_of(value)
#define STORE_FLOAT32(value)  (value)
#define STORE_FLOAT64(value)  (value)

#define MULTIPLY(name, storage)                                                                              \
    KERNEL static void multiply_##name(const void *lower, const void *upper, size_t elements,                \
                                       struct products *sum)                                                 \
    {                                                                                                        \
        const storage *a = lower, *b = upper;                                                                \
        double x[BLOCK], y[BLOCK];                                                                           \
        lanes aa = {0}, bb = {0}, ab = {0}, p, q;                                                            \
        for (size_t n; elements; elements -= n, a += n, b += n) {                                            \
            n = elements < BLOCK ? elements : BLOCK;                                                         \
            for (size_t i = 0; i < n; i++) {                                                                 \
                x[i] = LOAD_##name(a[i]);                                                                    \
                y[i] = LOAD_##name(b[i]);                                                                    \
            }                                                                                                \
            for (size_t i = n; i % LANES; i++)                                                               \
                x[i] = y[i] = 0;                                                                             \
            for (size_t i = 0; i < n; i += LANES) {                                                          \
                memcpy(&p, x + i, sizeof p);                                                                 \
                memcpy(&q, y + i, sizeof q);                                                                 \
                aa += p * p;                                                                                 \
                bb += q * q;                                                                                 \
                ab += p * q;                                                                                 \
            }                                                                                                \
        }                                                                                                    \
        for (int lane = 0; lane < LANES; lane++) {                                                           \
            sum->lower += aa[lane];                                                                          \
            sum->upper += bb[lane];                                                                          \
            sum->mixed += ab[lane];                                                                          \
        }                                                                                                    \
    }

#define ADD(name, storage, compute)                                                                          \
    KERNEL static void add_##name(void *result, const void *lower, const void *upper, size_t elements,       \
                                  double factor_of_lower, double factor_of_upper)                            \
    {                                                                                                        \
        storage *to = result;                                                                                \
        const storage *a = lower, *b = upper;                                                                \
        compute p = (compute)factor_of_lower, q = (compute)factor_of_upper;                                  \
        KERNEL_LOOP                                                                                          \
        for (size_t i = 0; i < elements; i++) {                                                              \
            compute value = LOAD_##name(a[i]) * p + LOAD_##name(b[i]) * q;                                   \
            to[i] = STORE_##name(ONE_NAN(value));                                                            \
        }                                                                                                    \
    }

#define FLOATS(name, storage, compute)                                                                       \
    MULTIPLY(name, storage)                                                                                  \
    ADD(name, storage, compute)

#define FUNCTIONS_logical(name, storage, compute)
#define FUNCTIONS_integer(name, storage, compute)
#define FUNCTIONS_complex(name, storage, compute)
#define FUNCTIONS_half(name, storage, compute) FLOATS(name, storage, compute)
#define FUNCTIONS_real(name, storage, compute) FLOATS(name, storage, compute)

#define DTYPE(name, text, storage, compute, family, ...) FUNCTIONS_##family(name, storage, compute)
#include "base/dtypes.def"
#undef DTYPE

#define ROW_logical(name)
#define ROW_integer(name)
#define ROW_complex(name)
#define ROW_half(name) [HVD_##name] = {multiply_##name, add_##name},
#define ROW_real(name) [HVD_##name] = {multiply_##name, add_##name},

static const struct adasum_kernels rows[] = {
#define DTYPE(name, text, storage, compute, family, ...) ROW_##family(name)
#include "base/dtypes.def"
#undef DTYPE
};

const struct adasum_kernels *adasum_kernels(hvd_dtype dtype)
{
    bool listed = (size_t)dtype < sizeof rows / sizeof *rows && rows[dtype].add;
    return listed ? &rows[dtype] : NULL;
}
