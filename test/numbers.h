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

/* From 1 to the next number; of what is exact 0. */
static inline double number_step(hvd_dtype dtype)
{
    _Alignas(16) char number[16];
    double step = is_integer(dtype) ? 0 : 2;
    do {
        step /= 2;
        number_put(dtype, number, 1 + step / 2);
    } while (step > 0 && number_get(dtype, number) > 1);
    return step;
}

#endif
