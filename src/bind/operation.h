/* operation.h - the Python type of an operation in flight, and the calls that start one. */
#ifndef HVD_BIND_OPERATION_H
#define HVD_BIND_OPERATION_H

#include "horovod.h"
#include "python.h"

int operation_init_module(PyObject *module); /* 0 or -1 */

/* submit(operation, name, inputs, outputs, reduction, prescale, postscale, root, process_set, priority,
 * grouped) -> Operation inputs and outputs are sequences; outputs None: in place, or the engine's own for
 * allgather. */
PyObject *operation_submit(hvd_context *context, PyObject *const *arguments, Py_ssize_t count);
/* The same, blocking -> list of Result for allgather, else None. */
PyObject *operation_run(hvd_context *context, PyObject *const *arguments, Py_ssize_t count);

/* Lets go of the tensors of operations that nobody waits for any more and that are done; all of them when
 * `all`. */
void operation_sweep(int all);

#endif
