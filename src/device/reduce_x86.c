/* reduce_x86.c - kernels of the 16-bit floats with instructions that the compiler does not use by itself: the
 * processor's conversions of float16 (F16C or AVX-512) and of bfloat16 (AVX-512 BF16), and the packing of
 * 16-bit lanes. Pure functions; any thread. */
#include "device/reduce_native.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* ---- float16 by AVX with F16C ----------------------------------------------------------------------- */

#define F16C       "avx,f16c"
#define LANES_avx  16 /* in both registers */
#define VECTOR_avx __m256
#define min_of_avx _mm256_min_ps
#define max_of_avx _mm256_max_ps
#define get_avx    _mm256_loadu_ps
#define put_avx    _mm256_storeu_ps

VERB(F16C, __m256, spread_avx, (float value), _mm256_set1_ps(value))
VERB(F16C, bool, is_nan_avx, (__m256 low, __m256 high),
     _mm256_movemask_ps(_mm256_cmp_ps(low, high, _CMP_UNORD_Q)) != 0)
VERB(F16C, __m256, or_nan_avx, (__m256 value, __m256 by, __m256 nan),
     _mm256_blendv_ps(value, nan, _mm256_cmp_ps(by, by, _CMP_UNORD_Q)))
SPREAD_WEIGHTS(avx)
OPERATIONS(F16C, avx)

VERB(F16C, __m256, low_f16c, (const uint16_t *from), _mm256_cvtph_ps(_mm_loadu_si128((const void *)from)))
VERB(F16C, __m256, high_f16c, (const uint16_t *from), low_f16c(from + LANES_avx / 2))

INLINE(F16C) void store_f16c(uint16_t *to, __m256 low, __m256 high)
{
    _mm_storeu_si128((void *)to, _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((void *)(to + LANES_avx / 2), _mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT));
}

CONVERSIONS(F16C, avx, f16c)
KERNELS(F16C, avx, f16c, f16c)

/* ---- float16 by AVX-512 ----------------------------------------------------------------------------- */

#define AVX512        "avx512f,avx512bw,avx512dq"
#define LANES_avx512  32
#define VECTOR_avx512 __m512
#define min_of_avx512 _mm512_min_ps
#define max_of_avx512 _mm512_max_ps
#define get_avx512    _mm512_loadu_ps
#define put_avx512    _mm512_storeu_ps

VERB(AVX512, __m512, spread_avx512, (float value), _mm512_set1_ps(value))
VERB(AVX512, bool, is_nan_avx512, (__m512 low, __m512 high), _mm512_cmp_ps_mask(low, high, _CMP_UNORD_Q) != 0)
VERB(AVX512, __m512, or_nan_avx512, (__m512 value, __m512 by, __m512 nan),
     _mm512_mask_mov_ps(value, _mm512_cmp_ps_mask(by, by, _CMP_UNORD_Q), nan))
SPREAD_WEIGHTS(avx512)
OPERATIONS(AVX512, avx512)

VERB(AVX512, __m512, low_f16, (const uint16_t *from), _mm512_cvtph_ps(_mm256_loadu_si256((const void *)from)))
VERB(AVX512, __m512, high_f16, (const uint16_t *from), low_f16(from + LANES_avx512 / 2))

INLINE(AVX512) void store_f16(uint16_t *to, __m512 low, __m512 high)
{
    _mm256_storeu_si256((void *)to, _mm512_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
    _mm256_storeu_si256((void *)(to + LANES_avx512 / 2), _mm512_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT));
}

CONVERSIONS(AVX512, avx512, f16)
KERNELS(AVX512, avx512, f16, f16)

/* ---- bfloat16 by AVX-512: low and high are every second element ------------------------------------- */

#define ODD 0xaaaaaaaa /* of the 16-bit lanes */

VERB(AVX512, __m512, low_bf16, (const uint16_t *from),
     _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(from), 16)))
VERB(AVX512, __m512, high_bf16, (const uint16_t *from),
     _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(from), _mm512_set1_epi32((int)0xffff0000))))

/* Widened elements alternate between the registers. */
VERB(AVX512, __m512, low_wide, (const uint16_t *from),
     _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)from)),
                                           16)))
VERB(AVX512, __m512, high_wide, (const uint16_t *from), low_wide(from + LANES_avx512 / 2))
WIDEN(AVX512, avx512, wide, kernels_BFLOAT16)
#define narrow_wide narrow_bfloat16

/* The upper halves, plus one if the lower half is above 0x8000, or equal to it while the upper half is odd.
 */
INLINE(AVX512) void store_bf16(uint16_t *to, __m512 low, __m512 high)
{
    __m512i even = _mm512_castps_si512(low), odd = _mm512_castps_si512(high), one = _mm512_set1_epi16(1);
    __m512i upper = _mm512_mask_blend_epi16(ODD, _mm512_srli_epi32(even, 16), odd);
    __m512i lower = _mm512_mask_blend_epi16(ODD, even, _mm512_slli_epi32(odd, 16));
    __m512i above = _mm512_or_si512(lower, _mm512_and_si512(upper, one));
    __mmask32 up = _mm512_cmpgt_epu16_mask(above, _mm512_set1_epi16(INT16_MIN));
    _mm512_storeu_si512(to, _mm512_mask_add_epi16(upper, up, upper, one));
}

KERNELS(AVX512, avx512, bf16, wide)

/* ---- bfloat16 by its own conversion, which spoils subnormal numbers and some NaNs -------------------- */

#define AVX512_BF16      AVX512 ",avx512bf16"
#define SPOILT           0xa0 /* subnormal, signalling NaN */
#define low_native_bf16  low_bf16
#define high_native_bf16 high_bf16

INLINE(AVX512_BF16) void store_native_bf16(uint16_t *to, __m512 low, __m512 high)
{
    const __m512i in_turn = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23,
                                             7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    if (_mm512_fpclass_ps_mask(low, SPOILT) | _mm512_fpclass_ps_mask(high, SPOILT))
        store_bf16(to, low, high);
    else
        _mm512_storeu_si512(to, _mm512_permutexvar_epi16(in_turn, (__m512i)_mm512_cvtne2ps_pbh(high, low)));
}

KERNELS(AVX512_BF16, avx512, native_bf16, wide)

/* -------------------------------------------------------------------------------------------------- */

const struct kernels *kernels_native(hvd_dtype dtype, int place)
{
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq");
    const struct {
        hvd_dtype dtype;
        bool here;
        const struct kernels *kernels;
    } rows[] = {
        {HVD_FLOAT16, avx512, &kernels_f16},
        {HVD_FLOAT16, __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c"), &kernels_f16c},
        {HVD_BFLOAT16, avx512 && __builtin_cpu_supports("avx512bf16"), &kernels_native_bf16},
        {HVD_BFLOAT16, avx512, &kernels_bf16},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].dtype == dtype && rows[i].here && place-- == 0)
            return rows[i].kernels;
    return NULL;
}
#endif
