/* errors.h - the engine's statuses as Python exceptions. */
#ifndef HVD_BIND_ERRORS_H
#define HVD_BIND_ERRORS_H

#include "bind/python.h"
#include "horovod.h"

/* Finds the exception classes. 0, or -1 with an exception set. */
int errors_init_module(void);

/* Sets the exception that fits: ValueError for a mistake of this rank, HorovodInternalError for what lies
 * between the ranks. NULL, for `return raise_status(&status)`. */
PyObject *raise_status(const hvd_status *status);

#endif
