/* scaling.c - computes the factors before and after a reduction, and applies them with the kernels of
 * reduce.h. Pure functions; any thread. A finite factor of the caller never becomes infinite. */
#include "device/scaling.h"

#include "base/types.h"
#include "device/reduce.h"

#include <math.h>

struct scaling scaling_of(hvd_dtype dtype, hvd_reduction reduction, double prescale, double postscale,
                          int size)
{
    struct scaling scaling = {
        .dtype = dtype, .prescale = prescale, .weight = 1, .factor = postscale, .divisor = 1};
    if (reduction != HVD_AVERAGE)
        return scaling;
    if (dtype_table[dtype].family != FAMILY_half) {
        scaling.divisor = size;
        return scaling;
    }
    while (scaling.weight * (float)size > 1) /* 1 / size, rounded down to a power of two */
        scaling.weight /= 2;
    double factor = postscale / (size * (double)scaling.weight);
    /* A finite factor stays finite, as 0 times infinity is a NaN. Both turn all halves except 0 into
     * infinities. */
    scaling.factor = isinf(factor) ? postscale : factor;
    return scaling;
}

bool scaling_begins(const struct scaling *scaling)
{
    return scaling->prescale != 1 || scaling->weight != 1;
}

void scaling_begin(const struct scaling *scaling, void *result, const void *a, size_t elements)
{
    if (scaling->prescale != 1) {
        reduce_scale(scaling->dtype, result, a, elements, scaling->prescale, 1);
        a = result;
    }
    if (scaling->weight != 1)
        reduce_scale(scaling->dtype, result, a, elements, scaling->weight, 1);
}

bool scaling_ends(const struct scaling *scaling)
{
    return scaling->factor != 1 || scaling->divisor != 1;
}

void scaling_end(const struct scaling *scaling, void *data, size_t elements)
{
    reduce_scale(scaling->dtype, data, data, elements, scaling->factor, scaling->divisor);
}
