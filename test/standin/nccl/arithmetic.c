/* arithmetic.c - the reductions of the stand-in for NCCL, by plain loops. */
#include "standin/nccl/communicator.h"

#include "numbers.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

size_t width_of(int type)
{
    static const size_t widths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return widths[type];
}

/* Elements as they are stored; all else computes with its own type. */
typedef struct {
    uint16_t bits;
} half;
typedef float f32;
typedef double f64;
__extension__ typedef __int128 wide;

#define PLAIN(value)         (value)
#define FROM_HALF(value)     from_FLOAT16((value).bits)
#define FROM_BFLOAT16(value) from_BFLOAT16((value).bits)

static half to_half(float value)
{
    return (half){to_FLOAT16(value)};
}

static half to_bfloat16(float value)
{
    return (half){to_BFLOAT16(value)};
}

/* ROW(NCCL's type, stored, computed, load, store) */
#define TYPES(ROW)                                                                                           \
    ROW(NCCL_INT8, int8_t, int, PLAIN, (int8_t))                                                             \
    ROW(NCCL_UINT8, uint8_t, unsigned, PLAIN, (uint8_t))                                                     \
    ROW(NCCL_INT32, int32_t, int64_t, PLAIN, (int32_t))                                                      \
    ROW(NCCL_UINT32, uint32_t, uint32_t, PLAIN, (uint32_t))                                                  \
    ROW(NCCL_INT64, int64_t, wide, PLAIN, (int64_t))                                                         \
    ROW(NCCL_UINT64, uint64_t, uint64_t, PLAIN, (uint64_t))                                                  \
    ROW(NCCL_FLOAT16, half, float, FROM_HALF, to_half)                                                       \
    ROW(NCCL_FLOAT32, f32, float, PLAIN, PLAIN)                                                              \
    ROW(NCCL_FLOAT64, f64, double, PLAIN, PLAIN)                                                             \
    ROW(NCCL_BFLOAT16, half, float, FROM_BFLOAT16, to_bfloat16)

void combine(void *into, const void *from, size_t count, int type, int op)
{
#define ROW(name, stored, computed, load, store)                                                             \
    if (type == (name))                                                                                      \
        for (size_t i = 0; i < count; i++) {                                                                 \
            computed a = (computed)load(((stored *)into)[i]), b = (computed)load(((const stored *)from)[i]); \
            computed c = op == NCCL_PRODUCT ? a * b : a + b;                                                 \
            if (op == NCCL_MAX || op == NCCL_MIN)                                                            \
                c = (op == NCCL_MAX ? a > b : a < b) || isnan((double)b) ? a : b;                            \
            ((stored *)into)[i] = store(c);                                                                  \
        }
    TYPES(ROW)
#undef ROW
}

void scale(void *data, size_t count, int type, double factor)
{
#define ROW(name, stored, computed, load, store)                                                             \
    if (type == (name))                                                                                      \
        for (size_t i = 0; i < count; i++)                                                                   \
            ((stored *)data)[i] = store((computed)((computed)load(((stored *)data)[i]) * (computed)factor));
    TYPES(ROW)
#undef ROW
}

double scalar_of(const void *scalar, int type)
{
    double value = 0;
#define ROW(name, stored, computed, load, store)                                                             \
    if (type == (name))                                                                                      \
        value = (double)(computed)load(*(const stored *)scalar);
    TYPES(ROW)
#undef ROW
    return value;
}
