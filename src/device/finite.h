/* finite.h - finds infinity and NaN among the elements of a tensor. Pure functions; any thread. */
#ifndef HVD_DEVICE_FINITE_H
#define HVD_DEVICE_FINITE_H

#include "horovod.h"

#include <stddef.h>

enum finiteness { ALL_FINITE, HAS_INFINITY, HAS_NAN };

/* Returns the worst that these elements have; integers are always finite. */
enum finiteness finiteness_of(hvd_dtype dtype, const void *data, size_t elements);

#endif
