/* tensor.h - any Python tensor or array as an hvd_tensor, without a copy; and the engine's tensors for
 * Python, by DLPack or as buffers. */
#ifndef HVD_BIND_TENSOR_H
#define HVD_BIND_TENSOR_H

#include "bind/dlpack.h"
#include "bind/python.h"
#include "horovod.h"

/* Which tensor of which operation, for error texts. */
struct tensor_role {
    const char *operation;
    int index;
    int written; /* the operation writes to it */
};

/* A tensor and what keeps its memory in place, whatever the Python object is changed to meanwhile. */
struct tensor_view {
    hvd_tensor tensor; /* its shape is the one below */
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

/* Whether the object that the view was made of, whose type shows it by its exchange table, was given other
 * memory since. Runs no Python. */
bool tensor_view_is_stale(const struct tensor_view *view, PyObject *object);

/* For the garbage collector. */
int tensor_view_traverse(const struct tensor_view *view, visitproc visit, void *arg);

/* ---- the engine's element types in the words of DLPack and of the buffer protocol ---------------------- */

DLDataType element_to_dlpack(hvd_dtype dtype);
char *element_to_format(hvd_dtype dtype); /* NULL: the buffer protocol has none */

/* ---- Result: a tensor that the engine allocated -------------------------------------------------------- */

/* Adds the type to the module. 0, or -1 with an exception set. */
int result_init_module(PyObject *module);

/* The results that the engine made, as a list of Result. NULL with an exception set. */
PyObject *result_list(hvd_handle *handle, int32_t count);

/* So many bytes of shared memory as a Result of uint8. NULL with an exception set. */
PyObject *result_shared(PyObject *module, PyObject *bytes);

#endif
