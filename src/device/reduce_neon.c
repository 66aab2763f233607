/* reduce_neon.c - kernels of float16 with NEON's conversions, which every 64-bit ARM has and which the
 * compiler does not use by itself. The plain loops of the other types, bfloat16 included, are compiled for
 * NEON anyway. Pure functions; any thread. */
#include "device/reduce_native.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#define NEON        "arch=armv8-a"
#define LANES_neon  8 /* in both registers */
#define VECTOR_neon float32x4_t
#define get_neon    vld1q_f32
#define put_neon    vst1q_f32

/* NEON's own minimum and maximum order the zeros, and let a NaN win. */
VERB(NEON, float32x4_t, min_of_neon, (float32x4_t a, float32x4_t b), vbslq_f32(vcltq_f32(a, b), a, b))
VERB(NEON, float32x4_t, max_of_neon, (float32x4_t a, float32x4_t b), vbslq_f32(vcgtq_f32(a, b), a, b))
VERB(NEON, float32x4_t, spread_neon, (float value), vdupq_n_f32(value))
VERB(NEON, bool, is_nan_neon, (float32x4_t low, float32x4_t high),
     vminvq_u32(vandq_u32(vceqq_f32(low, low), vceqq_f32(high, high))) == 0)
VERB(NEON, float32x4_t, or_nan_neon, (float32x4_t value, float32x4_t by, float32x4_t nan),
     vbslq_f32(vceqq_f32(by, by), value, nan))
SPREAD_WEIGHTS(neon)
OPERATIONS(NEON, neon)

VERB(NEON, float32x4_t, low_f16, (const uint16_t *from), vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from))))
VERB(NEON, float32x4_t, high_f16, (const uint16_t *from), low_f16(from + LANES_neon / 2))

INLINE(NEON) void store_f16(uint16_t *to, float32x4_t low, float32x4_t high)
{
    vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(low)));
    vst1_u16(to + LANES_neon / 2, vreinterpret_u16_f16(vcvt_f16_f32(high)));
}

CONVERSIONS(NEON, neon, f16)
KERNELS(NEON, neon, f16, f16)

const struct kernels *kernels_native(hvd_dtype dtype, int place)
{
    return dtype == HVD_FLOAT16 && place == 0 ? &kernels_f16 : NULL;
}
#endif
