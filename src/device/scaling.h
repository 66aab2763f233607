/* scaling.h - the factors that elements are multiplied by before and after they are added: those of a
 * request, and the division of an average.
 *
 * The sum of halves could overflow when their average does not. Each rank's elements are
 * therefore multiplied by a weight first: 1 / n, rounded down to a power of two, which is exact unless the
 * product is subnormal. The sum is multiplied by 1 / (n * weight), at most 2, at the end. Pure functions; any
 * thread. */
#ifndef HVD_DEVICE_SCALING_H
#define HVD_DEVICE_SCALING_H

#include "horovod.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scaling {
    hvd_dtype dtype;
    double prescale;
    float weight;  /* of each rank's elements; 1 unless halves are averaged */
    double factor; /* of the sum, with the divisor, as in reduce_scale */
    int64_t divisor;
};

/* Returns the scaling of a reduction over `size` ranks. */
struct scaling scaling_of(hvd_dtype dtype, hvd_reduction reduction, double prescale, double postscale,
                          int size);

/* scaling_begins: elements must be multiplied before they are added. scaling_begin multiplies them, also by
 * the weight. */
bool scaling_begins(const struct scaling *scaling);
void scaling_begin(const struct scaling *scaling, void *result, const void *a, size_t elements);

/* scaling_ends: the sum must be multiplied. scaling_end multiplies it. */
bool scaling_ends(const struct scaling *scaling);
void scaling_end(const struct scaling *scaling, void *data, size_t elements);

#endif
