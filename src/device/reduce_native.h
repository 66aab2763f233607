/* reduce_native.h - what the files of kernels with instructions of one processor share: the loops over 16-bit
 * floats, expanded for each of its instruction sets (`isa`), register types (`unit`) and element types
 * (`set`). Results equal those of reduce_half.c bit for bit. The last few elements use the same instructions
 * in a padded register, so every element is rounded in one way. Internal to src/device; pure functions; any
 * thread. */
#ifndef HVD_DEVICE_REDUCE_NATIVE_H
#define HVD_DEVICE_REDUCE_NATIVE_H

#include "device/kernel.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define INLINE(isa) static inline __attribute__((always_inline, target(isa)))

/* A set of kernels loads 16-bit floats into two registers of a unit, low and high, and stores them again. */
#define OPERANDS       void *result, const void *first, const void *second, size_t elements
#define WEIGH_OPERANDS OPERANDS, float of_a, float of_b
#define WEIGHTS        ((struct weights){of_a, of_b})
#define SCALE_WEIGHTS  ((struct weights){.a = (float)(factor / (double)divisor)})
#define SCALED_OPERAND void *result, const void *first, size_t elements, double factor, int64_t divisor

/* How NaNs are converted: a computed one becomes ONE_NAN. The processor's min and max return the second
 * operand if one is a NaN; these return the NaN. */
#define ANY_NAN(unit)   low, high, spread_##unit(NAN), spread_##unit(NAN)
#define FIRST_NAN(unit) low_a, high_a, low_a, high_a

#define COMBINE(function, isa, unit, set, operation, nan, other, by, parameters)                             \
    INLINE(isa)                                                                                              \
    void function##_step_##set(uint16_t *to, const uint16_t *a, const uint16_t *b,                           \
                               struct weights_##unit factor)                                                 \
    {                                                                                                        \
        VECTOR_##unit low_a = low_##set(a), high_a = high_##set(a);                                          \
        VECTOR_##unit low = operation##_##unit(low_a, low_##set(b), factor);                                 \
        VECTOR_##unit high = operation##_##unit(high_a, high_##set(b), factor);                              \
        set_nan_##unit(&low, &high, nan(unit));                                                              \
        store_##set(to, low, high);                                                                          \
    }                                                                                                        \
    __attribute__((target(isa))) static void function##_##set(parameters)                                    \
    {                                                                                                        \
        struct weights both = by;                                                                            \
        struct weights_##unit factors = {spread_##unit(both.a), spread_##unit(both.b)};                      \
        uint16_t *to = result;                                                                               \
        const uint16_t *a = first, *b = other;                                                               \
        size_t whole = elements - elements % LANES_##unit, rest = elements - whole;                          \
        for (size_t i = 0; i < whole; i += LANES_##unit)                                                     \
            function##_step_##set(to + i, a + i, b + i, factors);                                            \
        if (rest) {                                                                                          \
            uint16_t tail_a[LANES_##unit] = {0}, tail_b[LANES_##unit] = {0};                                 \
            memcpy(tail_a, a + whole, rest * sizeof *a);                                                     \
            memcpy(tail_b, b + whole, rest * sizeof *b);                                                     \
            function##_step_##set(tail_a, tail_a, tail_b, factors);                                          \
            memcpy(to + whole, tail_a, rest * sizeof *to);                                                   \
        }                                                                                                    \
    }

/* Both are exact, so the last few elements may use the portable loops. */
#define CONVERSION(isa, set, conversion, portable, lanes, to, from, ...)                                     \
    __attribute__((target(isa))) static void conversion##_##set(void *results, const void *sources,          \
                                                                size_t elements)                             \
    {                                                                                                        \
        to *result = results;                                                                                \
        const from *source = sources;                                                                        \
        size_t whole = elements - elements % (lanes);                                                        \
        for (size_t i = 0; i < whole; i += (lanes)) {                                                        \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
        portable.conversion(result + whole, source + whole, elements - whole);                               \
    }

#define WIDEN(isa, unit, set, portable)                                                                      \
    CONVERSION(isa, set, widen, portable, LANES_##unit, float, uint16_t,                                     \
               put_##unit(result + i, low_##set(source + i));                                                \
               put_##unit(result + i + LANES_##unit / 2, high_##set(source + i));)

#define CONVERSIONS(isa, unit, set)                                                                          \
    WIDEN(isa, unit, set, kernels_FLOAT16)                                                                   \
    CONVERSION(isa, set, narrow, kernels_FLOAT16, LANES_##unit, uint16_t, float,                             \
               store_##set(result + i, get_##unit(source + i), get_##unit(source + i + LANES_##unit / 2));)

#define KERNELS(isa, unit, set, conversions)                                                                 \
    COMBINE(sum, isa, unit, set, add, ANY_NAN, second, (struct weights){0}, OPERANDS)                        \
    COMBINE(min, isa, unit, set, smaller, FIRST_NAN, second, (struct weights){0}, OPERANDS)                  \
    COMBINE(max, isa, unit, set, larger, FIRST_NAN, second, (struct weights){0}, OPERANDS)                   \
    COMBINE(product, isa, unit, set, multiply, ANY_NAN, second, (struct weights){0}, OPERANDS)               \
    COMBINE(weigh, isa, unit, set, weighed, ANY_NAN, second, WEIGHTS, WEIGH_OPERANDS)                        \
    COMBINE(scale, isa, unit, set, scaled, ANY_NAN, first, SCALE_WEIGHTS, SCALED_OPERAND)                    \
    static const struct kernels kernels_##set = {sum_##set,           min_##set,           max_##set,        \
                                                 product_##set,       scale_##set,         weigh_##set,      \
                                                 widen_##conversions, narrow_##conversions};

/* One of the operations uses it. */
#define FACTOR __attribute__((unused))

#define VERB(isa, type, name, arguments, value)                                                              \
    INLINE(isa) type name arguments                                                                          \
    {                                                                                                        \
        return value;                                                                                        \
    }

#define OPERATION(isa, unit, name, value)                                                                    \
    VERB(isa, VECTOR_##unit, name##_##unit,                                                                  \
         (FACTOR VECTOR_##unit a, FACTOR VECTOR_##unit b, FACTOR struct weights_##unit by), value)

/* struct weights in every lane. */
#define SPREAD_WEIGHTS(unit)                                                                                 \
    struct weights_##unit {                                                                                  \
        VECTOR_##unit a, b;                                                                                  \
    };

/* A NaN is rare, so both registers are tested at once. */
#define OPERATIONS(isa, unit)                                                                                \
    OPERATION(isa, unit, add, a + b)                                                                         \
    OPERATION(isa, unit, weighed, a *by.a + b * by.b)                                                        \
    OPERATION(isa, unit, multiply, a *b)                                                                     \
    OPERATION(isa, unit, scaled, a *by.a)                                                                    \
    OPERATION(isa, unit, smaller, min_of_##unit(a, b))                                                       \
    OPERATION(isa, unit, larger, max_of_##unit(a, b))                                                        \
    INLINE(isa)                                                                                              \
    void set_nan_##unit(VECTOR_##unit *low, VECTOR_##unit *high, VECTOR_##unit by_low,                       \
                        VECTOR_##unit by_high, VECTOR_##unit nan_low, VECTOR_##unit nan_high)                \
    {                                                                                                        \
        if (__builtin_expect(is_nan_##unit(by_low, by_high), 0)) {                                           \
            *low = or_nan_##unit(*low, by_low, nan_low);                                                     \
            *high = or_nan_##unit(*high, by_high, nan_high);                                                 \
        }                                                                                                    \
    }

#endif
