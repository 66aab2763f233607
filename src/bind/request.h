/* request.h - defines the Python type Request, which says what an operation does, and turns it and the
 * tensors of a call into an hvd_request. Holds the tensors until the operation has finished. Any Python
 * thread calls these functions with the GIL held. */
#ifndef HVD_BIND_REQUEST_H
#define HVD_BIND_REQUEST_H

#include "bind/python.h"
#include "bind/tensor.h"
#include "horovod.h"

#include <stdbool.h>
#include <stdint.h>

/* The tensors of an operation, inputs first, with the references that keep their memory in place. */
struct held_tensors {
    int32_t count;
    struct tensor_view *views;
    int64_t *splits; /* of an alltoall; NULL otherwise or if none were given */
    Py_ssize_t split_count;
};

/* Adds the type to the module. Returns 0, or -1 with an exception set. */
int request_init_module(PyObject *module);

/* Is a function of the module. Returns a Request, which is an hvd_request without name, tensors and splits.
 */
PyObject *request_describe(PyObject *module, PyObject *const *arguments, Py_ssize_t count,
                           PyObject *keywords);

/* A Request and the values that a submission adds to it, as borrowed references. Outputs, splits and streams
 * may be NULL. */
struct submission {
    PyObject *request, *name, *inputs, *outputs, *splits, *streams;
};

/* The engine makes the results first ... end - 1 of an operation. */
struct made_results {
    int32_t first, end;
};

/* Reads a submission, which runs Python code, and holds its tensors. Does not set inputs and outputs of the
 * request. Returns 0, or -1 with an exception set; then nothing is held. */
int request_read(hvd_request *request, struct held_tensors *held, struct made_results *made,
                 const struct submission *submission);

/* Sets inputs and outputs to the held tensors and submits the request, without running Python code before
 * that. Returns 0, or -1 with an exception set; then nothing is held. */
int request_submit(hvd_context *context, hvd_request *request, struct held_tensors *held,
                   hvd_handle **handle);

/* Returns true if a tensor and these bytes overlap. */
bool held_tensors_overlap(const struct held_tensors *held, const void *memory, size_t bytes);

/* Releases the tensors and the splits. May run Python code. */
void held_tensors_release(struct held_tensors *held);

/* Visits the owners of the tensors for the garbage collector. */
int held_tensors_traverse(const struct held_tensors *held, visitproc visit, void *arg);

#endif
