/* numbers.h - numbers of every element type, one at a time, as plainly as possible. */
#ifndef HVD_TEST_NUMBERS_H
#define HVD_TEST_NUMBERS_H

#include "base/types.h"

#include <math.h>
#include <string.h>

/* Of every row. */
static const hvd_dtype dtypes[] = {
#define DTYPE(name, ...) HVD_##name,
#include "base/dtypes.def"
#undef DTYPE
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static const hvd_reduction reductions[] = {
#define REDUCTION(name, ...) HVD_##name,
#include "base/reductions.def"
#undef REDUCTION
};
enum { REDUCTIONS = sizeof reductions / sizeof *reductions };

/* ---- 16-bit floats: the compiler's own conversions ---------------------------------------------------- */

#ifdef __clang__ /* 14 has no _Float16 */
typedef __fp16 native_half;
#else
__extension__ typedef _Float16 native_half;
#endif

static inline float from_FLOAT16(uint16_t bits)
{
    native_half half;
    memcpy(&half, &bits, sizeof half);
    return (float)half;
}

static inline uint16_t to_FLOAT16(float value)
{
    native_half half = (native_half)value;
    uint16_t bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
}

static inline float from_BFLOAT16(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* The nearer of the two neighbours; of two equally near ones the even. */
static inline uint16_t to_BFLOAT16(float value)
{
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    uint16_t below = (uint16_t)(word >> 16);
    uint32_t rest = word & 0xffff;
    if (value != value)
        return below | 0x40;
    return (uint16_t)(below + (rest > 0x8000 || (rest == 0x8000 && below % 2)));
}

/* ---- every type ---------------------------------------------------------------------------------------- */

/* Complex numbers: the real part; an imaginary one is wrong. */
#define GET_logical(name, value) (value)
#define GET_integer(name, value) ((double)(value))
#define GET_real(name, value)    (value)
#define GET_half(name, value)    from_##name(value)
#define GET_complex(name, value) ((value) == (double)(value) ? (double)(value) : NAN)

#define PUT_logical(name, storage, value) ((value) != 0)
#define PUT_integer(name, storage, value) ((storage)(int64_t)(value))
#define PUT_real(name, storage, value)    ((storage)(value))
#define PUT_half(name, storage, value)    to_##name((float)(value))
#define PUT_complex(name, storage, value) ((storage)(value))

static inline double number_get(hvd_dtype dtype, const void *from)
{
    switch (dtype) {
#define DTYPE(name, text, storage, compute, family, ...)                                                     \
    case HVD_##name:                                                                                         \
        return GET_##family(name, *(const storage *)from);
#include "base/dtypes.def"
#undef DTYPE
    }
    return NAN;
}

static inline void number_put(hvd_dtype dtype, void *to, double value)
{
    switch (dtype) {
#define DTYPE(name, text, storage, compute, family, ...)                                                     \
    case HVD_##name:                                                                                         \
        *(storage *)to = PUT_##family(name, storage, value);                                                 \
        break;
#include "base/dtypes.def"
#undef DTYPE
    }
}

/* What is exact: integers, and bool. */
static inline bool is_integer(hvd_dtype dtype)
{
    return (dtype_table[dtype].family & (FAMILY_integer | FAMILY_logical)) != 0;
}

/* The distance from 1 to the next number; 0 for exact types. Each thread computes it once for each type,
 * since tests ask for it for every element. */
static inline double number_step(hvd_dtype dtype)
{
    static _Thread_local double steps[DTYPES];
    _Alignas(16) char number[16];
    double step = steps[dtype];
    if (step > 0 || is_integer(dtype))
        return step;
    step = 2;
    do {
        step /= 2;
        number_put(dtype, number, 1 + step / 2);
    } while (number_get(dtype, number) > 1);
    return steps[dtype] = step;
}

/* ---- two elements become one --------------------------------------------------------------------------- */

#define LOAD_integer(name, value) (value)
#define LOAD_real(name, value)    (value)
#define LOAD_half(name, value)    from_##name(value)

#define STORE_integer(name, value) (value)
#define STORE_real(name, value)    (value)
#define STORE_half(name, value)    to_##name(value)

#define SUM_integer(a, b)     ((uint64_t)(a) + (uint64_t)(b))
#define SUM_real(a, b)        ((a) + (b))
#define SUM_half(a, b)        ((a) + (b))
#define PRODUCT_integer(a, b) ((uint64_t)(a) * (uint64_t)(b))
#define PRODUCT_real(a, b)    ((a) * (b))
#define PRODUCT_half(a, b)    ((a) * (b))

#define EXPECT_SCALAR(name, storage, compute, family)                                                        \
    static inline void expect_##name(hvd_reduction reduction, void *result, const void *a, const void *b)    \
    {                                                                                                        \
        compute x = LOAD_##family(name, *(const storage *)a), y = LOAD_##family(name, *(const storage *)b);  \
        compute z = reduction == HVD_PRODUCT ? (compute)PRODUCT_##family(x, y)                               \
                    : reduction == HVD_MIN   ? (x != x || x < y ? x : y)                                     \
                    : reduction == HVD_MAX   ? (x != x || x > y ? x : y)                                     \
                                             : (compute)SUM_##family(x, y);                                    \
        *(storage *)result = (storage)STORE_##family(name, z);                                               \
    }                                                                                                        \
    static inline bool is_nan_##name(const void *element)                                                    \
    {                                                                                                        \
        compute value = LOAD_##family(name, *(const storage *)element);                                      \
        return value != value;                                                                               \
    }

#define EXPECT_integer(name, storage, compute) EXPECT_SCALAR(name, storage, compute, integer)
#define EXPECT_real(name, storage, compute)    EXPECT_SCALAR(name, storage, compute, real)
#define EXPECT_half(name, storage, compute)    EXPECT_SCALAR(name, storage, compute, half)

#define EXPECT_logical(name, storage, compute)                                                               \
    static inline void expect_##name(hvd_reduction reduction, void *result, const void *a, const void *b)    \
    {                                                                                                        \
        bool x = *(const storage *)a, y = *(const storage *)b;                                               \
        bool both = reduction == HVD_PRODUCT || reduction == HVD_MIN;                                        \
        *(storage *)result = both ? x && y : x || y;                                                         \
    }                                                                                                        \
    static inline bool is_nan_##name(const void *element)                                                    \
    {                                                                                                        \
        (void)element;                                                                                       \
        return false;                                                                                        \
    }

/* is_nan is asked of a part. */
#define EXPECT_complex(name, storage, compute)                                                               \
    static inline void expect_##name(hvd_reduction reduction, void *result, const void *a, const void *b)    \
    {                                                                                                        \
        const compute *x = a, *y = b;                                                                        \
        compute *z = result;                                                                                 \
        bool product = reduction == HVD_PRODUCT;                                                             \
        z[0] = product ? x[0] * y[0] - x[1] * y[1] : x[0] + y[0];                                            \
        z[1] = product ? x[0] * y[1] + x[1] * y[0] : x[1] + y[1];                                            \
    }                                                                                                        \
    static inline bool is_nan_##name(const void *element)                                                    \
    {                                                                                                        \
        compute value = *(const compute *)element;                                                           \
        return value != value;                                                                               \
    }

#define PARTS_logical 1
#define PARTS_integer 1
#define PARTS_real    1
#define PARTS_half    1
#define PARTS_complex 2

#define DTYPE(name, text, storage, compute, family, ...) EXPECT_##family(name, storage, compute)
#include "base/dtypes.def"
#undef DTYPE

/* Of two elements, in place, too; the average's sum is not divided. */
static inline void number_combine(hvd_dtype dtype, hvd_reduction reduction, void *result, const void *a,
                                  const void *b)
{
    _Alignas(16) char combined[16];
    switch (dtype) {
#define DTYPE(name, ...)                                                                                     \
    case HVD_##name:                                                                                         \
        expect_##name(reduction, combined, a, b);                                                            \
        break;
#include "base/dtypes.def"
#undef DTYPE
    }
    memcpy(result, combined, hvd_dtype_size(dtype));
}

#endif
