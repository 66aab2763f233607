/* snapshot.h - the type Snapshot: a copy of a state, which the ranks of a host share (hvd_snapshot_create in
 * horovod.h). Any Python thread calls these functions with the GIL held. */
#ifndef HVD_BIND_SNAPSHOT_H
#define HVD_BIND_SNAPSHOT_H

#include "bind/python.h"

/* Adds the type to the module. Returns 0, or -1 with an exception set. */
int snapshot_init_module(PyObject *module);

#endif
