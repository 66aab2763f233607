/* types.h - names and sizes of element types, reductions and operations, expanded from the .def lists. */
#ifndef HVD_BASE_TYPES_H
#define HVD_BASE_TYPES_H

#include "horovod.h"

#include <stdbool.h>

bool dtype_known(int dtype);
bool reduction_known(int reduction);
bool operation_known(int operation);
const char *reduction_name(hvd_reduction reduction); /* "sum" */

/* Of the rows of operations.def: whether it does this reduction at all, whether it does any, and whether its
 * outputs are the engine's. */
bool operation_does(hvd_operation operation, hvd_reduction reduction);
bool operation_reduces(hvd_operation operation);
bool operation_makes_results(hvd_operation operation);

/* Whether it may run without the ranks that have joined: always, only when asked for, never. */
enum absence { ABSENCE_always, ABSENCE_asked, ABSENCE_never };
enum absence operation_absence(hvd_operation operation);

/* Whether the reduction makes sense for this type, as reductions.def says. */
bool reduction_takes(hvd_reduction reduction, hvd_dtype dtype);

/* HVD_INVALID_ARGUMENT when the type can't be reduced so, or can't be scaled though `scaled`; the text says
 * what it can. Both are known. */
hvd_code types_check_reduction(hvd_operation operation, hvd_dtype dtype, hvd_reduction reduction, bool scaled,
                               hvd_status *status);

/* Product of the extents, or -1 when one is negative or the product of bytes overflows. */
int64_t shape_elements(const int64_t *shape, int ndim, size_t element_size);
/* "[2, 3]", "[]"; cut with "..." when it does not fit. */
const char *shape_text(const int64_t *shape, int ndim, char *text, size_t capacity);

#endif
