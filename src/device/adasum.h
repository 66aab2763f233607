/* adasum.h - what Adasum computes: dot products of two vectors, and their weighted sum. Host, floats only.
 *
 * Operands must not overlap, except that the result may be one of them. Pure functions; any thread. */
#ifndef HVD_DEVICE_ADASUM_H
#define HVD_DEVICE_ADASUM_H

#include "horovod.h"

#include <stddef.h>

/* Dot products of the operand of the lower rank with itself, of the upper one's, and of both. */
struct products {
    double lower, upper, mixed;
};

struct adasum_kernels {
    /* Adds the products of these elements to *sum, in float64. The same elements give the same bits. */
    void (*multiply)(const void *lower, const void *upper, size_t elements, struct products *sum);
    /* result[i] = lower[i] * factor_of_lower + upper[i] * factor_of_upper, in float64 for float64, else
     * float32 */
    void (*add)(void *result, const void *lower, const void *upper, size_t elements, double factor_of_lower,
                double factor_of_upper);
};

/* NULL: not a type of floats. */
const struct adasum_kernels *adasum_kernels(hvd_dtype dtype);

#endif
