/* tensor.h - any Python tensor or array as an hvd_tensor, without a copy; and the engine's element types in
 * the words of DLPack and of the buffer protocol. With the GIL held. */
#ifndef HVD_BIND_TENSOR_H
#define HVD_BIND_TENSOR_H

#include "bind/dlpack.h"
#include "bind/module.h"
#include "horovod.h"

#include <stdbool.h>
#include <stdint.h>

/* Which tensor of which operation, for error texts. */
struct tensor_role {
    const char *operation;
    int index;
    int written; /* the operation writes to it */
};

/* A tensor and what keeps its memory in place, whatever the Python object is changed to meanwhile. */
struct tensor_view {
    hvd_tensor tensor; /* its shape is the one below */
    void *stream; /* that the submitting thread works on, of the tensor's device; NULL: the default one */
    PyObject
        *owner; /* of the memory: the storage, the object, the capsule that it gave, or a copy; or NULL */
    Py_buffer buffer; /* held when buffer.obj is not NULL */
    int64_t shape[HVD_MAX_DIMENSIONS];
};

/* Interns names. 0, or -1 with an exception set. */
int tensor_init_module(void);

/* 0, or -1 with a ValueError set that says what is wrong with the object; then nothing is held. */
int tensor_view_init(struct tensor_view *view, PyObject *object, const struct tensor_role *role);
void tensor_view_release(struct tensor_view *view); /* zeroed memory is fine */

size_t tensor_view_bytes(const struct tensor_view *view);

/* Which stream of the object's device the calling thread works on: 1, or 0 where the object is on the CPU or
 * its type has no exchange table to tell. Runs no Python of its own. */
int tensor_stream(PyObject *object, void **stream);

/* Whether the object that the view was made of, whose type shows it by its exchange table, was given other
 * memory since. Runs no Python. */
bool tensor_view_is_stale(const struct tensor_view *view, PyObject *object);

/* For the garbage collector. */
int tensor_view_traverse(const struct tensor_view *view, visitproc visit, void *arg);

/* ---- the engine's element types in the words of DLPack and of the buffer protocol ---------------------- */

DLDataType element_to_dlpack(hvd_dtype dtype);
char *element_to_format(hvd_dtype dtype); /* opaque bytes where the buffer protocol has none */

#endif
