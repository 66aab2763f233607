/* result.h - memory of results that the engine allocates. Any thread. */
#ifndef HVD_ENGINE_RESULT_H
#define HVD_ENGINE_RESULT_H

#include <stddef.h>
#include <stdint.h>

struct memory_ops;

/* `bytes` of memory that hvd_free takes, on a device of this type, beside a copy of the shape that lives as
 * long. NULL when memory is out. */
void *result_allocate(const struct memory_ops *memory, int32_t device_id, const int64_t *shape, int ndim,
                      size_t bytes, const int64_t **kept_shape);

#endif
