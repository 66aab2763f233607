/* types.h - names and sizes of element types, reductions and operations, expanded from the .def lists. */
#ifndef HVD_BASE_TYPES_H
#define HVD_BASE_TYPES_H

#include "horovod.h"

#include <stdbool.h>

bool dtype_known(int dtype);
bool reduction_known(int reduction);
bool operation_known(int operation);
const char *reduction_name(hvd_reduction reduction); /* "sum" */
const char *operation_name(hvd_operation operation); /* "allreduce" */

/* Of the rows of operations.def: whether it does this reduction at all, whether it does any, and whether its
 * outputs are the engine's. */
bool operation_does(hvd_operation operation, hvd_reduction reduction);
bool operation_reduces(hvd_operation operation);
bool operation_makes_results(hvd_operation operation);

/* Product of the extents, or -1 when one is negative or the product of bytes overflows. */
int64_t shape_elements(const int64_t *shape, int ndim, size_t element_size);
/* "[2, 3]", "[]"; cut with "..." when it does not fit. */
const char *shape_text(const int64_t *shape, int ndim, char *text, size_t capacity);

#endif
