/* membership.h - defines the Python type Membership, the state machine of src/membership. Any Python thread
 * calls this function with the GIL held. */
#ifndef HVD_BIND_MEMBERSHIP_H
#define HVD_BIND_MEMBERSHIP_H

#include "bind/python.h"

/* Adds the type to the module. Returns 0, or -1 with an exception set. */
int membership_init_module(PyObject *module);

#endif
