/* scaling.h - what elements are multiplied by before and after they are added up: the factors of a request,
 * and the division of an average.
 *
 * The sum of an average of halves could overflow where the average does not. Each rank's elements are
 * therefore multiplied by a weight first: 1 / n, rounded down to a power of two, which is exact unless the
 * product is subnormal. The sum is multiplied by 1 / (n * weight), at most 2, in the end. Pure functions; any
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
    double factor; /* of the sum, with the divisor, as of reduce_scale */
    int64_t divisor;
};

/* Of a reduction over this number of ranks. */
struct scaling scaling_of(hvd_dtype dtype, hvd_reduction reduction, double prescale, double postscale,
                          int size);

/* Whether elements have to be multiplied before they are added; multiplies them, by the weight too. */
bool scaling_begins(const struct scaling *scaling);
void scaling_begin(const struct scaling *scaling, void *result, const void *a, size_t elements);

/* Whether the sum has to be multiplied; multiplies it. */
bool scaling_ends(const struct scaling *scaling);
void scaling_end(const struct scaling *scaling, void *data, size_t elements);

#endif
