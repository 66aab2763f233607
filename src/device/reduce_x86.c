/* reduce_x86.c - float16 kernels with the processor's own conversions (F16C or AVX-512), which the compiler
 * does not use by itself. The last few elements go through the same instructions in a padded register, so
 * every element is rounded in one way. */
#include "device/kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define INLINE(isa) static inline __attribute__((always_inline, target(isa)))

/* One set of kernels for vectors of LANES_<set> floats, of type VECTOR_<set>. */
#define OPERANDS        void *result, const void *first, const void *second, size_t elements
#define SCALED_OPERANDS OPERANDS, double factor, int64_t divisor
#define SCALED_OPERAND  void *result, const void *first, size_t elements, double factor, int64_t divisor

#define COMBINE(function, isa, set, operation, other, by, parameters)                                        \
    __attribute__((target(isa))) static void function##_##set(parameters)                                    \
    {                                                                                                        \
        VECTOR_##set factors = spread_##set((float)(by));                                                    \
        uint16_t *to = result;                                                                               \
        const uint16_t *a = first, *b = other;                                                               \
        size_t whole = elements - elements % LANES_##set, rest = elements - whole;                           \
        for (size_t i = 0; i < whole; i += LANES_##set)                                                      \
            store_##set(to + i, operation##_##set(load_##set(a + i), load_##set(b + i), factors));           \
        if (rest) {                                                                                          \
            uint16_t tail_a[LANES_##set] = {0}, tail_b[LANES_##set] = {0};                                   \
            memcpy(tail_a, a + whole, rest * sizeof *a);                                                     \
            memcpy(tail_b, b + whole, rest * sizeof *b);                                                     \
            store_##set(tail_a, operation##_##set(load_##set(tail_a), load_##set(tail_b), factors));         \
            memcpy(to + whole, tail_a, rest * sizeof *to);                                                   \
        }                                                                                                    \
    }

/* The last few of both go through padded registers, too. */
#define CONVERSIONS(isa, set)                                                                                \
    __attribute__((target(isa))) static void widen_##set(float *result, const uint16_t *halves,              \
                                                         size_t elements)                                    \
    {                                                                                                        \
        size_t whole = elements - elements % LANES_##set, rest = elements - whole;                           \
        uint16_t tail[LANES_##set] = {0};                                                                    \
        for (size_t i = 0; i < whole; i += LANES_##set)                                                      \
            put_##set(result + i, load_##set(halves + i));                                                   \
        memcpy(tail, halves + whole, rest * sizeof *halves);                                                 \
        float wide[LANES_##set];                                                                             \
        put_##set(wide, load_##set(tail));                                                                   \
        memcpy(result + whole, wide, rest * sizeof *wide);                                                   \
    }                                                                                                        \
    __attribute__((target(isa))) static void narrow_##set(uint16_t *result, const float *values,             \
                                                          size_t elements)                                   \
    {                                                                                                        \
        size_t whole = elements - elements % LANES_##set, rest = elements - whole;                           \
        float wide[LANES_##set] = {0};                                                                       \
        uint16_t tail[LANES_##set];                                                                          \
        for (size_t i = 0; i < whole; i += LANES_##set)                                                      \
            store_##set(result + i, get_##set(values + i));                                                  \
        memcpy(wide, values + whole, rest * sizeof *wide);                                                   \
        store_##set(tail, get_##set(wide));                                                                  \
        memcpy(result + whole, tail, rest * sizeof *tail);                                                   \
    }

/* Counts in one of the verbs. */
#define FACTOR __attribute__((unused))

#define VERB(isa, type, name, arguments, value)                                                              \
    INLINE(isa) type name arguments                                                                          \
    {                                                                                                        \
        return value;                                                                                        \
    }

/* What `value` is, but `nan` in the lanes where `by` is a NaN: the processor's min and max yield the second
 * operand where one is a NaN, ours yield the NaN; and see ONE_NAN. */
#define VERBS(isa, set)                                                                                      \
    VERB(isa, VECTOR_##set, add_##set, (VECTOR_##set a, VECTOR_##set b, FACTOR VECTOR_##set factor),         \
         or_nan_##set(a + b, a + b, spread_##set(NAN)))                                                      \
    VERB(isa, VECTOR_##set, add_scaled_##set, (VECTOR_##set a, VECTOR_##set b, FACTOR VECTOR_##set factor),  \
         or_nan_##set((a + b) * factor, (a + b) * factor, spread_##set(NAN)))                                \
    VERB(isa, VECTOR_##set, multiply_##set, (VECTOR_##set a, VECTOR_##set b, FACTOR VECTOR_##set factor),    \
         or_nan_##set(a *b, a *b, spread_##set(NAN)))                                                        \
    VERB(isa, VECTOR_##set, scaled_##set, (VECTOR_##set a, FACTOR VECTOR_##set b, VECTOR_##set factor),      \
         or_nan_##set(a *factor, a *factor, spread_##set(NAN)))                                              \
    VERB(isa, VECTOR_##set, smaller_##set, (VECTOR_##set a, VECTOR_##set b, FACTOR VECTOR_##set factor),     \
         or_nan_##set(min_of_##set(a, b), a, a))                                                             \
    VERB(isa, VECTOR_##set, larger_##set, (VECTOR_##set a, VECTOR_##set b, FACTOR VECTOR_##set factor),      \
         or_nan_##set(max_of_##set(a, b), a, a))

#define KERNELS(isa, set)                                                                                    \
    VERBS(isa, set)                                                                                          \
    COMBINE(sum, isa, set, add, second, 1, OPERANDS)                                                         \
    COMBINE(min, isa, set, smaller, second, 1, OPERANDS)                                                     \
    COMBINE(max, isa, set, larger, second, 1, OPERANDS)                                                      \
    COMBINE(product, isa, set, multiply, second, 1, OPERANDS)                                                \
    COMBINE(scaled_sum, isa, set, add_scaled, second, factor / (double)divisor, SCALED_OPERANDS)             \
    COMBINE(scale, isa, set, scaled, first, factor / (double)divisor, SCALED_OPERAND)                        \
    CONVERSIONS(isa, set)                                                                                    \
    static const struct kernels kernels_##set = {sum_##set,   min_##set,        max_##set,   product_##set,  \
                                                 scale_##set, scaled_sum_##set, widen_##set, narrow_##set};

/* ---- AVX with F16C: 8 at a time --------------------------------------------------------------------- */

#define F16C        "avx,f16c"
#define LANES_f16c  8
#define VECTOR_f16c __m256
#define min_of_f16c _mm256_min_ps
#define get_f16c    _mm256_loadu_ps
#define put_f16c    _mm256_storeu_ps
#define max_of_f16c _mm256_max_ps

VERB(F16C, __m256, load_f16c, (const uint16_t *from), _mm256_cvtph_ps(_mm_loadu_si128((const void *)from)))
VERB(F16C, __m256, spread_f16c, (float value), _mm256_set1_ps(value))
VERB(F16C, __m256, or_nan_f16c, (__m256 value, __m256 by, __m256 nan),
     _mm256_blendv_ps(value, nan, _mm256_cmp_ps(by, by, _CMP_UNORD_Q)))

INLINE(F16C) void store_f16c(uint16_t *to, __m256 value)
{
    _mm_storeu_si128((void *)to, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

KERNELS(F16C, f16c)

/* ---- AVX-512: 16 at a time -------------------------------------------------------------------------- */

#define AVX512        "avx512f"
#define LANES_avx512  16
#define VECTOR_avx512 __m512
#define min_of_avx512 _mm512_min_ps
#define get_avx512    _mm512_loadu_ps
#define put_avx512    _mm512_storeu_ps
#define max_of_avx512 _mm512_max_ps

VERB(AVX512, __m512, load_avx512, (const uint16_t *from),
     _mm512_cvtph_ps(_mm256_loadu_si256((const void *)from)))
VERB(AVX512, __m512, spread_avx512, (float value), _mm512_set1_ps(value))
VERB(AVX512, __m512, or_nan_avx512, (__m512 value, __m512 by, __m512 nan),
     _mm512_mask_mov_ps(value, _mm512_cmp_ps_mask(by, by, _CMP_UNORD_Q), nan))

INLINE(AVX512) void store_avx512(uint16_t *to, __m512 value)
{
    _mm256_storeu_si256((void *)to, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

KERNELS(AVX512, avx512)

/* -------------------------------------------------------------------------------------------------- */

const struct kernels *kernels_float16_native(int place)
{
    const struct kernels *found[3] = {NULL};
    int count = 0;
    if (__builtin_cpu_supports("avx512f"))
        found[count++] = &kernels_avx512;
    if (__builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c"))
        found[count++] = &kernels_f16c;
    return place < count ? found[place] : NULL;
}

#else

const struct kernels *kernels_float16_native(int place)
{
    (void)place;
    return NULL;
}

#endif
