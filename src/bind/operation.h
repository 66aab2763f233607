/* operation.h - the Python type of an operation in flight. With the GIL held. */
#ifndef HVD_BIND_OPERATION_H
#define HVD_BIND_OPERATION_H

#include "bind/module.h"

/* Adds the type to the module. 0, or -1 with an exception set. */
int operation_init_module(PyObject *module);

/* Functions of the module. Submits a Request under a name on tensors, and returns its Handle. */
PyObject *operation_submit(PyObject *module, PyObject *const *arguments, Py_ssize_t count,
                           PyObject *keywords);

/* The same, waits, and returns the list of Results that the engine made, else None. */
PyObject *operation_run(PyObject *module, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords);

/* Waits until all Handles of a sequence are over; then raises the first one's failure, or returns None. */
PyObject *operation_wait_all(PyObject *module, PyObject *operations);

/* (address, bytes): the status text of an operation in flight on them, or None. */
PyObject *operation_in_flight(PyObject *module, PyObject *arguments);

#endif
