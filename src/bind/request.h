/* request.h - one call from Python as an hvd_request, and the tensors that must stay until it is done. */
#ifndef HVD_BIND_REQUEST_H
#define HVD_BIND_REQUEST_H

#include "bind/tensor.h"

/* (operation, name, inputs, outputs, reduction, prescale, postscale, root, process_set, priority, grouped);
 * after them may come the splits of an alltoall and what makes the outcome of the tensors, each or None, and
 * whether the caller waits next */
enum { REQUEST_ARGUMENTS = 11, REQUEST_SPLITS = 11, REQUEST_FINISH, REQUEST_WAITS, REQUEST_END };

struct held_tensors {
    int32_t count;
    struct tensor_view *views;
    int64_t *splits; /* alltoall's, or NULL */
    Py_ssize_t split_count;
};

/* How many outputs of the operation are the engine's. */
int32_t request_results(const hvd_request *request);

/* Reads the arguments of a call, which runs Python; inputs and outputs are not set yet. 0, or -1 with an
 * exception set; then nothing is held. */
int request_read(hvd_request *request, struct held_tensors *held, PyObject *const *arguments,
                 Py_ssize_t count);

/* Sets inputs and outputs to the held tensors, and submits, without running Python before. 0, or -1 as
 * above. */
int request_submit(hvd_context *context, hvd_request *request, struct held_tensors *held,
                   hvd_handle **handle);

/* A rank, a set or the number of an operation. 0, or -1 with an exception set. */
int read_int32(PyObject *object, int32_t *value);

/* Whether any of them lies in these bytes, or a part of it. */
bool held_tensors_touch(const struct held_tensors *held, const void *memory, size_t bytes);

/* Releases the Python objects. */
void held_tensors_release(struct held_tensors *held);

/* For the garbage collector. */
int held_tensors_traverse(const struct held_tensors *held, visitproc visit, void *arg);

#endif
