/* finite.c - see finite.h. Without its sign, a float is the larger the larger its bits are as an integer:
 * those of infinity have all bits of the exponent, and those of a NaN are larger still. */
#include "device/finite.h"

#include "device/kernel.h"

#include <string.h>

#define BLOCK                                                                                                \
    ((size_t)32) /* bytes: a register of AVX2; larger ones gain nothing, as the loads are the limit */

/* name: returns the largest element of these spans without its sign, as an integer. name_of_long: the same of
 * at least one block; the last block overlaps the one before. The empty assembly keeps the compiler from
 * preparing registers for a few elements. */
#define GREATEST(name, integer, magnitude)                                                                   \
    typedef integer name##_block __attribute__((vector_size(BLOCK), aligned(1), may_alias));                 \
                                                                                                             \
    static inline void name##_keep(name##_block *greatest, const char *from)                                 \
    {                                                                                                        \
        name##_block elements = *(const name##_block *)from & magnitude;                                     \
        for (size_t i = 0; i < BLOCK / sizeof(integer); i++)                                                 \
            (*greatest)[i] = elements[i] > (*greatest)[i] ? elements[i] : (*greatest)[i];                    \
    }                                                                                                        \
                                                                                                             \
    KERNEL static integer name##_of_long(const char *from, size_t length)                                    \
    {                                                                                                        \
        name##_block a = {0}, b = {0}, c = {0}, d = {0};                                                     \
        integer greatest = 0;                                                                                \
        name##_keep(&a, from + length - BLOCK);                                                              \
        for (; length >= 4 * BLOCK; length -= 4 * BLOCK, from += 4 * BLOCK) {                                \
            name##_keep(&a, from);                                                                           \
            name##_keep(&b, from + BLOCK);                                                                   \
            name##_keep(&c, from + 2 * BLOCK);                                                               \
            name##_keep(&d, from + 3 * BLOCK);                                                               \
        }                                                                                                    \
        for (; length >= BLOCK; length -= BLOCK, from += BLOCK)                                              \
            name##_keep(&a, from);                                                                           \
        for (size_t i = 0; i < BLOCK / sizeof(integer); i++) {                                               \
            greatest = a[i] > greatest ? a[i] : greatest;                                                    \
            greatest = b[i] > greatest ? b[i] : greatest;                                                    \
            greatest = c[i] > greatest ? c[i] : greatest;                                                    \
            greatest = d[i] > greatest ? d[i] : greatest;                                                    \
        }                                                                                                    \
        return greatest;                                                                                     \
    }                                                                                                        \
                                                                                                             \
    static integer name(const struct span *spans, int count, size_t limit)                                   \
    {                                                                                                        \
        integer greatest = 0, element;                                                                       \
        for (int i = 0; i < count; i++) {                                                                    \
            size_t length = spans[i].length;                                                                 \
            if (length > limit)                                                                              \
                continue;                                                                                    \
            if (length >= BLOCK) {                                                                           \
                element = name##_of_long(spans[i].data, length);                                             \
                greatest = element > greatest ? element : greatest;                                          \
                continue;                                                                                    \
            }                                                                                                \
            for (size_t at = 0; at < length; at += sizeof element) {                                         \
                memcpy(&element, spans[i].data + at, sizeof element);                                        \
                element &= magnitude;                                                                        \
                greatest = element > greatest ? element : greatest;                                          \
                __asm__("" : "+r"(greatest));                                                                \
            }                                                                                                \
        }                                                                                                    \
        return greatest;                                                                                     \
    }

GREATEST(greatest_of_2_bytes, int16_t, INT16_MAX)
GREATEST(greatest_of_4_bytes, int32_t, INT32_MAX)
GREATEST(greatest_of_8_bytes, int64_t, INT64_MAX)

static enum finiteness compare(int64_t greatest, int64_t infinity)
{
    return greatest > infinity ? HAS_NAN : greatest == infinity ? HAS_INFINITY : ALL_FINITE;
}

enum finiteness finiteness_of(hvd_dtype dtype, const struct span *spans, int count, size_t limit)
{
    switch (dtype) {
    case HVD_FLOAT16:
        return compare(greatest_of_2_bytes(spans, count, limit), 0x7c00);
    case HVD_BFLOAT16:
        return compare(greatest_of_2_bytes(spans, count, limit), 0x7f80);
    case HVD_FLOAT32:
    case HVD_COMPLEX64: /* pairs of float32 */
        return compare(greatest_of_4_bytes(spans, count, limit), 0x7f800000);
    case HVD_FLOAT64:
    case HVD_COMPLEX128:
        return compare(greatest_of_8_bytes(spans, count, limit), 0x7ff0000000000000);
    default:
        return ALL_FINITE;
    }
}
