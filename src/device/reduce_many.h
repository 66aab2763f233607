/* reduce_many.h - several vectors become one in a single pass over memory.
 *
 * Rules of operands and threads as in reduce.h. */
#ifndef HVD_DEVICE_REDUCE_MANY_H
#define HVD_DEVICE_REDUCE_MANY_H

#include "horovod.h"

#include <stddef.h>

/* result[i] = (sources[0][i] op sources[1][i] op ...) * factor / divisor, in this order; 16-bit floats add up
 * in float32 and are rounded once. The result may be one of the sources. With 1 and 1 nothing is scaled,
 * which is all that types without reduce_scale can do. `count` is at least 1. */
void reduce_many(hvd_dtype dtype, hvd_reduction reduction, void *result, const void *const *sources,
                 int count, size_t elements, double factor, int64_t divisor);

#endif
