/* finite.h - finds infinity and NaN among the elements of tensors. Pure functions; any thread. */
#ifndef HVD_DEVICE_FINITE_H
#define HVD_DEVICE_FINITE_H

#include "device/memory.h"
#include "horovod.h"

#include <stddef.h>

enum finiteness { ALL_FINITE, HAS_INFINITY, HAS_NAN };

/* Returns the worst that these elements have; spans of more than `limit` bytes are left out, and integers are
 * always finite. */
enum finiteness finiteness_of(hvd_dtype dtype, const struct span *spans, int count, size_t limit);

#endif
