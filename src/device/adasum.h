/* adasum.h - Adasum: dot products of two vectors, and their weighted sum; floats only. Pure functions; any
 * thread. */
#ifndef HVD_DEVICE_ADASUM_H
#define HVD_DEVICE_ADASUM_H

#include "horovod.h"

#include <stddef.h>

/* Dot products: the lower rank's operand with itself, the upper rank's with itself, and one with the other.
 */
struct products {
    double lower, upper, mixed;
};

/* Adds the products of these elements to *sum, in float64. The same elements give the same bits. */
void adasum_multiply(hvd_dtype dtype, const void *lower, const void *upper, size_t elements,
                     struct products *sum);
/* Computes result[i] = lower[i] * factor_of_lower + upper[i] * factor_of_upper; 64-bit types in float64. */
void adasum_add(hvd_dtype dtype, void *result, const void *lower, const void *upper, size_t elements,
                double factor_of_lower, double factor_of_upper);

#endif
