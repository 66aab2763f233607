/* reduce.h - element kernels on the host: they combine and scale, for every element type and reduction; and
 * the identity of each.
 *
 * The best instruction set of this processor is chosen at the first use. Half types compute in float32
 * and round to nearest even. A NaN in either operand gives a NaN; one that was computed always has the same
 * bits. Operands may be equal (in place) but must not overlap otherwise; alignment is that of the element
 * type. Pure functions; any thread. */
#ifndef HVD_DEVICE_REDUCE_H
#define HVD_DEVICE_REDUCE_H

#include "horovod.h"

#include <stddef.h>

/* result[i] = a[i] op b[i] */
typedef void (*combine_fn)(void *result, const void *a, const void *b, size_t elements);

/* result[i] = a[i] * of_a + b[i] * of_b, rounded once if both factors are powers of two. */
typedef void (*weigh_fn)(void *result, const void *a, const void *b, size_t elements, float of_a, float of_b);

/* Returns NULL if the type has no such reduction (types_check_reduction). */
combine_fn reduce_combine(hvd_dtype dtype, hvd_reduction reduction);

/* Computes result[i] = a[i] * factor / divisor: floats in one multiplication by factor / divisor, in float64
 * for 64-bit types and if float32 can't hold the factor; complex numbers as their two parts. Integers divide
 * exactly if factor is 1 (towards zero, divisor below 2^24), otherwise they compute in float64 and truncate
 * towards zero, saturating at the type's limits; factor must be finite. Not for bool. */
void reduce_scale(hvd_dtype dtype, void *result, const void *a, size_t elements, double factor,
                  int64_t divisor);
/* Returns the kernel of a half type; NULL for other types. */
weigh_fn reduce_weigh(hvd_dtype dtype);

#define IDENTITY_BYTES 16 /* size of the largest element */

/* Writes the element e with e op x = x for every x, which a rank without data contributes: -0 for sums, the
 * largest value for a minimum, ... */
void identity_element(hvd_dtype dtype, hvd_reduction reduction, void *element);

#endif
