/* rendezvous.h - defines the Python types Rendezvous and Watch: the store in which ranks meet, for a starter
 * that is written in Python. Any Python thread calls this function with the GIL held. */
#ifndef HVD_BIND_RENDEZVOUS_H
#define HVD_BIND_RENDEZVOUS_H

#include "bind/python.h"

/* Adds the types to the module. Returns 0, or -1 with an exception set. */
int rendezvous_init_module(PyObject *module);

#endif
