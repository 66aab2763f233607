/* context.h - holds the default context of the process, which all functions of the module use. Any Python
 * thread calls these functions with the GIL held. */
#ifndef HVD_BIND_CONTEXT_H
#define HVD_BIND_CONTEXT_H

#include "bind/python.h"
#include "horovod.h"

/* Registers the handler that discards other threads in a child of fork(). Returns 0, or -1 with an exception
 * set. */
int context_init_module(void);

/* These are functions of the module; its table of methods in module.c describes them. */
PyObject *context_init(PyObject *module, PyObject *arguments);
PyObject *context_shutdown(PyObject *module, PyObject *unused);
PyObject *context_is_initialized(PyObject *module, PyObject *unused);
PyObject *context_plan(PyObject *module, PyObject *arguments);
PyObject *context_placement(PyObject *module, PyObject *unused);

/* Returns the context, which is valid until Python code runs or the GIL is released, or NULL with a
 * ValueError set if hvd.init() has not been called. */
hvd_context *context_current(void);

#endif
