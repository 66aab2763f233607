/* identity.h - the element that changes nothing: what a rank without data contributes to a reduction. Pure
 * functions; any thread. */
#ifndef HVD_DEVICE_IDENTITY_H
#define HVD_DEVICE_IDENTITY_H

#include "horovod.h"

#include <stddef.h>

/* data[i] = e with e op x = x for every x: -0 for sums, the largest value for a minimum, ... */
void identity_fill(void *data, size_t elements, hvd_dtype dtype, hvd_reduction reduction);

#endif
