/* tensor.h - describes any Python tensor or array as an hvd_tensor, without a copy, and translates the
 * engine's element types to DLPack and the buffer protocol. Any Python thread calls these functions with the
 * GIL held. */
#ifndef HVD_BIND_TENSOR_H
#define HVD_BIND_TENSOR_H

#include "bind/dlpack.h"
#include "bind/python.h"
#include "horovod.h"

#include <stdbool.h>
#include <stdint.h>

/* The place of a tensor in a call, for error texts. */
struct tensor_role {
    const char *operation;
    int index;
    int written; /* the operation writes to it */
};

/* A tensor, with the references that keep its memory in place even if the Python object is given other
 * memory. */
struct tensor_view {
    hvd_tensor tensor; /* its shape points to the member below */
    void *stream; /* of the tensor's device, on which the submitting thread works; NULL: the default one */
    /* The owner of the memory: the storage, the object, the capsule that it returned, a copy, or NULL. */
    PyObject *owner;
    Py_buffer buffer; /* held when buffer.obj is not NULL */
    int64_t shape[HVD_MAX_DIMENSIONS];
};

/* Interns names of attributes. Returns 0, or -1 with an exception set. */
int tensor_init_module(void);

/* Describes the object and holds its memory. May run Python code. Returns 0, or -1 with a ValueError set that
 * says why the object is refused; then nothing is held. */
int tensor_view_init(struct tensor_view *view, PyObject *object, const struct tensor_role *role);
void tensor_view_release(struct tensor_view *view); /* a zeroed view holds nothing */

size_t tensor_view_bytes(const struct tensor_view *view);

/* Sets *stream to the stream of the object's device on which the calling thread works and returns 1. Returns
 * 0 if the object is on the CPU, or if its type has no exchange table that reports the stream. */
int tensor_stream(PyObject *object, void **stream);

/* Returns true if the object from which the view was made has other memory now. Knows it only for types with
 * an exchange table. Runs no Python code. */
bool tensor_view_is_stale(const struct tensor_view *view, PyObject *object);

/* Visits the owner for the garbage collector. */
int tensor_view_traverse(const struct tensor_view *view, visitproc visit, void *arg);

/* ---- element types ------------------------------------------------------------------------------------ */

DLDataType element_to_dlpack(hvd_dtype dtype);
char *element_to_format(hvd_dtype dtype); /* opaque bytes if the buffer protocol has no letter */

#endif
