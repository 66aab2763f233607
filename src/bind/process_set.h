/* process_set.h - hvd_process_set_* for Python: functions of the module. */
#ifndef HVD_BIND_PROCESS_SET_H
#define HVD_BIND_PROCESS_SET_H

#include "bind/python.h"

PyObject *process_set_add(PyObject *module, PyObject *ranks); /* a sequence of int; gives the id */
PyObject *process_set_remove(PyObject *module, PyObject *id);
PyObject *process_set_ids(PyObject *module, PyObject *unused);
PyObject *process_set_ranks(PyObject *module, PyObject *id);

#endif
