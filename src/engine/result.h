/* result.h - memory of results that the engine allocates. Any thread. */
#ifndef HVD_ENGINE_RESULT_H
#define HVD_ENGINE_RESULT_H

#include <stddef.h>
#include <stdint.h>

/* Memory that hvd_free takes: `bytes` of data behind a block with the shape. NULL when memory is out. */
void *result_allocate(const int64_t *shape, int ndim, size_t bytes, const int64_t **kept_shape);

#endif
