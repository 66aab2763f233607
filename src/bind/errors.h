/* errors.h - raises the Python exception that belongs to a code of the engine. Any Python thread calls these
 * functions with the GIL held. */
#ifndef HVD_BIND_ERRORS_H
#define HVD_BIND_ERRORS_H

#include "bind/python.h"
#include "horovod.h"

/* Imports HorovodInternalError. Returns 0, or -1 with an exception set. */
int errors_init_module(void);

/* Sets a ValueError for a mistake of this rank, a MemoryError if memory ran out, and a HorovodInternalError
 * for any other failure. Returns NULL, so that a caller can write `return raise_status(&status)`. */
PyObject *raise_status(const hvd_status *status);

#endif
