/* finite.c - see finite.h. Without its sign, a float is the larger the larger its bits are as an integer:
 * those of infinity have all bits of the exponent, and those of a NaN are larger still. */
#include "device/finite.h"

#include "device/kernel.h"

#include <string.h>

/* Returns the largest element without its sign, as an integer. */
#define GREATEST(name, integer, magnitude)                                                                   \
    KERNEL static integer name(const void *data, size_t elements)                                            \
    {                                                                                                        \
        const char *from = data;                                                                             \
        integer greatest = 0;                                                                                \
        for (size_t i = 0; i < elements; i++) {                                                              \
            integer element;                                                                                 \
            memcpy(&element, from + i * sizeof element, sizeof element);                                     \
            element &= magnitude;                                                                            \
            greatest = element > greatest ? element : greatest;                                              \
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

enum finiteness finiteness_of(hvd_dtype dtype, const void *data, size_t elements)
{
    switch (dtype) {
    case HVD_FLOAT16:
        return compare(greatest_of_2_bytes(data, elements), 0x7c00);
    case HVD_BFLOAT16:
        return compare(greatest_of_2_bytes(data, elements), 0x7f80);
    case HVD_FLOAT32:
        return compare(greatest_of_4_bytes(data, elements), 0x7f800000);
    case HVD_COMPLEX64: /* pairs of float32 */
        return compare(greatest_of_4_bytes(data, 2 * elements), 0x7f800000);
    case HVD_FLOAT64:
        return compare(greatest_of_8_bytes(data, elements), 0x7ff0000000000000);
    case HVD_COMPLEX128:
        return compare(greatest_of_8_bytes(data, 2 * elements), 0x7ff0000000000000);
    default:
        return ALL_FINITE;
    }
}
