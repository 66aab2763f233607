/* reduce_x86.c - float16 kernels with the processor's own conversions (F16C or AVX-512), which the compiler
 * does not use by itself. The last few elements go through the same instructions in a padded register, so
 * every element is rounded in one way. */
#include "device/kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define INLINE(isa) static inline __attribute__((always_inline, target(isa)))

/* One set of kernels for vectors of LANES floats: needs LOAD, STORE, ADD, MULTIPLY, SMALLER, LARGER, SPREAD.
 */
#define COMBINE(function, isa, set, operation)                                                               \
    __attribute__((target(isa))) static void function##_##set(void *result, const void *first,               \
                                                              const void *second, size_t elements)           \
    {                                                                                                        \
        uint16_t *to = result;                                                                               \
        const uint16_t *a = first, *b = second;                                                              \
        size_t whole = elements - elements % LANES_##set, rest = elements - whole;                           \
        for (size_t i = 0; i < whole; i += LANES_##set)                                                      \
            store_##set(to + i, operation##_##set(load_##set(a + i), load_##set(b + i)));                    \
        if (rest) {                                                                                          \
            uint16_t tail_a[LANES_##set] = {0}, tail_b[LANES_##set] = {0};                                   \
            memcpy(tail_a, a + whole, rest * sizeof *a);                                                     \
            memcpy(tail_b, b + whole, rest * sizeof *b);                                                     \
            store_##set(tail_a, operation##_##set(load_##set(tail_a), load_##set(tail_b)));                  \
            memcpy(to + whole, tail_a, rest * sizeof *to);                                                   \
        }                                                                                                    \
    }

#define SCALE(isa, set)                                                                                      \
    __attribute__((target(isa))) static void scale_##set(void *result, const void *source, size_t elements,  \
                                                         double factor, int64_t divisor)                     \
    {                                                                                                        \
        uint16_t *to = result;                                                                               \
        const uint16_t *from = source;                                                                       \
        VECTOR_##set by = spread_##set((float)(factor / (double)divisor));                                   \
        size_t whole = elements - elements % LANES_##set, rest = elements - whole;                           \
        for (size_t i = 0; i < whole; i += LANES_##set)                                                      \
            store_##set(to + i, multiply_##set(load_##set(from + i), by));                                   \
        if (rest) {                                                                                          \
            uint16_t tail[LANES_##set] = {0};                                                                \
            memcpy(tail, from + whole, rest * sizeof *from);                                                 \
            store_##set(tail, multiply_##set(load_##set(tail), by));                                         \
            memcpy(to + whole, tail, rest * sizeof *to);                                                     \
        }                                                                                                    \
    }

#define KERNELS(isa, set)                                                                                    \
    COMBINE(sum, isa, set, add)                                                                              \
    COMBINE(min, isa, set, smaller)                                                                          \
    COMBINE(max, isa, set, larger)                                                                           \
    COMBINE(product, isa, set, multiply)                                                                     \
    SCALE(isa, set)                                                                                          \
    static const struct kernels kernels_##set = {sum_##set, min_##set, max_##set, product_##set, scale_##set};

/* One function of a set: the name, its type and its arguments, and what it returns. */
#define VERB(isa, type, name, arguments, value)                                                              \
    INLINE(isa) type name arguments                                                                          \
    {                                                                                                        \
        return value;                                                                                        \
    }

/* ---- AVX with F16C: 8 at a time --------------------------------------------------------------------- */

#define F16C        "avx,f16c"
#define LANES_f16c  8
#define VECTOR_f16c __m256

/* The processor's min and max yield the second operand when one is NaN; ours yield the NaN. */
#define OR_NAN_f16c(value, a) _mm256_blendv_ps(value, a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q))

VERB(F16C, __m256, load_f16c, (const uint16_t *from), _mm256_cvtph_ps(_mm_loadu_si128((const void *)from)))
VERB(F16C, __m256, spread_f16c, (float value), _mm256_set1_ps(value))
VERB(F16C, __m256, add_f16c, (__m256 a, __m256 b), _mm256_add_ps(a, b))
VERB(F16C, __m256, multiply_f16c, (__m256 a, __m256 b), _mm256_mul_ps(a, b))
VERB(F16C, __m256, smaller_f16c, (__m256 a, __m256 b), OR_NAN_f16c(_mm256_min_ps(a, b), a))
VERB(F16C, __m256, larger_f16c, (__m256 a, __m256 b), OR_NAN_f16c(_mm256_max_ps(a, b), a))

INLINE(F16C) void store_f16c(uint16_t *to, __m256 value)
{
    _mm_storeu_si128((void *)to, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

KERNELS(F16C, f16c)

/* ---- AVX-512: 16 at a time -------------------------------------------------------------------------- */

#define AVX512        "avx512f"
#define LANES_avx512  16
#define VECTOR_avx512 __m512

#define OR_NAN_avx512(value, a) _mm512_mask_mov_ps(value, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a)

VERB(AVX512, __m512, load_avx512, (const uint16_t *from),
     _mm512_cvtph_ps(_mm256_loadu_si256((const void *)from)))
VERB(AVX512, __m512, spread_avx512, (float value), _mm512_set1_ps(value))
VERB(AVX512, __m512, add_avx512, (__m512 a, __m512 b), _mm512_add_ps(a, b))
VERB(AVX512, __m512, multiply_avx512, (__m512 a, __m512 b), _mm512_mul_ps(a, b))
VERB(AVX512, __m512, smaller_avx512, (__m512 a, __m512 b), OR_NAN_avx512(_mm512_min_ps(a, b), a))
VERB(AVX512, __m512, larger_avx512, (__m512 a, __m512 b), OR_NAN_avx512(_mm512_max_ps(a, b), a))

INLINE(AVX512) void store_avx512(uint16_t *to, __m512 value)
{
    _mm256_storeu_si256((void *)to, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

KERNELS(AVX512, avx512)

/* -------------------------------------------------------------------------------------------------- */

const struct kernels *kernels_float16_native(void)
{
    if (__builtin_cpu_supports("avx512f"))
        return &kernels_avx512;
    return __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c") ? &kernels_f16c : NULL;
}

#else

const struct kernels *kernels_float16_native(void)
{
    return NULL;
}

#endif
