/* half.h - the 16-bit floats from float32 and back, rounded to nearest even: loops over these vectorise.
 * Internal to src/device. */
#ifndef HVD_DEVICE_HALF_H
#define HVD_DEVICE_HALF_H

#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

INLINE float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- bfloat16: the upper half of a float32 --------------------------------------------------------- */

/* The upper half of the result is the bfloat16, the lower half is to be ignored. No NaN is rounded away: the
 * lower half of every NaN here is zero, as it is ONE_NAN or comes from a bfloat16. */
INLINE uint32_t bfloat16_round(float value)
{
    uint32_t bits = bits_of(value);
    return bits + 0x7fff + (bits >> 16 & 1);
}

INLINE uint16_t bfloat16_of(float value)
{
    return (uint16_t)(bfloat16_round(value) >> 16);
}

INLINE float bfloat16_value(uint16_t half)
{
    return float_of((uint32_t)half << 16);
}

/* ---- float16: 5 bits of exponent, 10 of fraction ---------------------------------------------------- */

INLINE float float16_value(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t rest = (uint32_t)(half & 0x7fff) << 13;
    uint32_t exponent = rest & 0x0f800000;
    uint32_t normal = rest + 0x38000000;                                         /* 127 - 15 */
    uint32_t special = (rest + 0x70000000) | (rest > 0x0f800000 ? 0x400000 : 0); /* infinite; NaN, quiet */
    uint32_t subnormal = bits_of(float_of(rest + 0x38800000) - float_of(0x38800000)); /* 2^-14 */
    uint32_t bits = exponent == 0x0f800000 ? special : exponent == 0 ? subnormal : normal;
    return float_of(bits | sign);
}

INLINE uint16_t float16_of(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t sign = bits & 0x80000000;
    bits ^= sign;
    /* Adding a float whose last bit is float16's smallest step makes the adder round at that step. */
    uint32_t step = ((127 - 15) + (23 - 10) + 1) << 23;
    uint32_t subnormal = bits_of(float_of(bits) + float_of(step)) - step;
    uint32_t normal = (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13;
    uint32_t special = bits > 0x7f800000 ? 0x7e00 | (bits >> 13 & 0x3ff) : 0x7c00;
    uint32_t half = bits >= 0x47800000 ? special : bits < 0x38800000 ? subnormal : normal;
    return (uint16_t)(half | sign >> 16);
}

#endif
