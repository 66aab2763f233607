/* identity.h - the element that changes nothing: what a rank without data contributes to a reduction. Pure
 * functions; any thread. */
#ifndef HVD_DEVICE_IDENTITY_H
#define HVD_DEVICE_IDENTITY_H

#include "horovod.h"

#define IDENTITY_BYTES 16 /* at most */

/* Writes e with e op x = x for every x: -0 for sums, the largest value for a minimum, ... */
void identity_element(hvd_dtype dtype, hvd_reduction reduction, void *element);

#endif
