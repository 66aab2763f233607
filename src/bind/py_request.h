/* py_request.h - a Python call as an hvd_request: its arguments, the operation's row, and the tensors that
 * must stay until it is done. With the GIL held. */
#ifndef HVD_BIND_PY_REQUEST_H
#define HVD_BIND_PY_REQUEST_H

#include "bind/module.h"
#include "bind/tensor.h"
#include "horovod.h"

#include <stdbool.h>
#include <stdint.h>

struct held_tensors {
    int32_t count;
    struct tensor_view *views;
    int64_t *splits; /* alltoall's, or NULL */
    Py_ssize_t split_count;
};

/* Adds the type to the module. 0, or -1 with an exception set. */
int request_init_module(PyObject *module);

/* Function of the module: a Request, which is an hvd_request but for name, tensors and splits. */
PyObject *request_describe(PyObject *module, PyObject *const *arguments, Py_ssize_t count,
                           PyObject *keywords);

/* What a submission adds to a Request, borrowed; outputs, splits and streams may be NULL. */
struct submission {
    PyObject *request, *name, *inputs, *outputs, *splits, *streams;
};

/* Which results of an operation the engine makes: first ... end - 1. */
struct made_results {
    int32_t first, end;
};

/* Reads a submission, which runs Python; inputs and outputs of the request are not set yet. 0, or -1 with an
 * exception set; then nothing is held. */
int request_read(hvd_request *request, struct held_tensors *held, struct made_results *made,
                 const struct submission *submission);

/* Sets inputs and outputs to the held tensors, and submits, without running Python before. 0, or -1 as
 * above. */
int request_submit(hvd_context *context, hvd_request *request, struct held_tensors *held,
                   hvd_handle **handle);

/* Whether any of them lies in these bytes, or a part of it. */
bool held_tensors_touch(const struct held_tensors *held, const void *memory, size_t bytes);

/* Releases the Python objects. */
void held_tensors_release(struct held_tensors *held);

/* For the garbage collector. */
int held_tensors_traverse(const struct held_tensors *held, visitproc visit, void *arg);

#endif
