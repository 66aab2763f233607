/* py_context.h - the default context of the module. With the GIL held. */
#ifndef HVD_BIND_PY_CONTEXT_H
#define HVD_BIND_PY_CONTEXT_H

#include "bind/module.h"
#include "horovod.h"

/* Lets go of other threads in a child of fork(). 0, or -1 with an exception set. */
int context_init_module(void);

/* Functions of the module. */
PyObject *context_init(PyObject *module, PyObject *arguments);
PyObject *context_shutdown(PyObject *module, PyObject *unused);
PyObject *context_is_initialized(PyObject *module, PyObject *unused);

/* The process's; NULL with an exception set: hvd.init() has not been called. */
hvd_context *module_context(void);

#endif
