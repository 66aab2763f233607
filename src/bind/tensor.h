/* tensor.h - any Python tensor or array as an hvd_tensor, without a copy. */
#ifndef HVD_BIND_TENSOR_H
#define HVD_BIND_TENSOR_H

#include "horovod.h"
#include "python.h"

/* A tensor and what keeps its memory in place. */
struct tensor_view {
    hvd_tensor tensor;
    PyObject *keep; /* the object, or the capsule it gave */
    Py_buffer buffer;
    int has_buffer;
    int64_t shape[HVD_MAX_DIMENSIONS];
};

/* Sets view from `object`; `writable`: the operation will write to it. 0, or -1 with a ValueError or
 * TypeError set that says what is wrong with it. */
int tensor_view_init(struct tensor_view *view, PyObject *object, int writable);
void tensor_view_fini(struct tensor_view *view); /* zeroed memory is fine */

int tensor_init_module(void); /* interns names; 0 or -1 */

#endif
