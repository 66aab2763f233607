/* operation.h - defines the Python type Handle, which is an operation in flight, and the functions that
 * submit operations and wait for them. Any Python thread calls them with the GIL held; waiting releases it.
 */
#ifndef HVD_BIND_OPERATION_H
#define HVD_BIND_OPERATION_H

#include "bind/python.h"

/* Adds the type to the module. Returns 0, or -1 with an exception set. */
int operation_init_module(PyObject *module);

/* Is a function of the module, as the ones below: submits a Request under a name on tensors, and returns its
 * Handle. */
PyObject *operation_submit(PyObject *module, PyObject *const *arguments, Py_ssize_t count,
                           PyObject *keywords);

/* Submits, waits, and returns the list of the Results that the engine made, or None if it made none. */
PyObject *operation_run(PyObject *module, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords);

/* Waits until the operations of all Handles in a sequence have finished. Then raises the failure of the first
 * one that failed, or returns None. */
PyObject *operation_wait_all(PyObject *module, PyObject *operations);

/* The arguments are an address and a number of bytes. Returns the status text of an operation in flight on
 * these bytes, or None. */
PyObject *operation_in_flight(PyObject *module, PyObject *arguments);

#endif
