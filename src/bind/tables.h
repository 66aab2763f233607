/* tables.h - offers operations.def and reductions.def to Python, and reads an operation that Python passes.
 * Any Python thread calls these functions with the GIL held. */
#ifndef HVD_BIND_TABLES_H
#define HVD_BIND_TABLES_H

#include "bind/python.h"
#include "horovod.h"

/* Adds the type Operation, the dicts `operations` and `reductions` and the list `dtypes` to the module.
 * Returns 0, or -1 with an exception set. */
int tables_init_module(PyObject *module);

/* Reads an Operation and how many tensors the engine makes for one tensor of the caller. Returns 0, or -1
 * with a TypeError set. */
int tables_read_operation(PyObject *object, hvd_operation *operation, int *results);

#endif
