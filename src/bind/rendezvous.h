/* rendezvous.h - the Python types Rendezvous and Watch: the store in which ranks meet, for a starter written
 * in Python. With the GIL held. */
#ifndef HVD_BIND_RENDEZVOUS_H
#define HVD_BIND_RENDEZVOUS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Adds the types to the module. Returns 0, or -1 with an exception set. */
int rendezvous_init_module(PyObject *module);

#endif
