/* result.h - memory for results, on any type of device, with a copy of the shape. Any thread. */
#ifndef HVD_ENGINE_RESULT_H
#define HVD_ENGINE_RESULT_H

#include "device/memory.h"

#include <stddef.h>
#include <stdint.h>

/* Allocates `bytes` of memory on a device of this type, and a copy of the shape that lives as long;
 * result_free frees both. NULL: out of memory. */
void *result_allocate(const struct memory_ops *memory, int32_t device_id, const int64_t *shape, int ndim,
                      size_t bytes, const int64_t **kept_shape);
void result_free(void *data); /* NULL is fine */

#endif
