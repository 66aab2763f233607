/* process_set.h - declares the module's functions for process sets; the table of methods in module.c
 * describes them. Any Python thread calls them with the GIL held. Adding, opening and removing a set release
 * it while they wait for the other ranks. */
#ifndef HVD_BIND_PROCESS_SET_H
#define HVD_BIND_PROCESS_SET_H

#include "bind/python.h"

PyObject *process_set_add(PyObject *module, PyObject *arguments);
PyObject *process_set_open(PyObject *module, PyObject *arguments);
PyObject *process_set_remove(PyObject *module, PyObject *number);
PyObject *process_set_ids(PyObject *module, PyObject *unused);
PyObject *process_set_ranks(PyObject *module, PyObject *number);

#endif
