/* errors.h - the exceptions that Python sees of the engine's codes. With the GIL held. */
#ifndef HVD_BIND_ERRORS_H
#define HVD_BIND_ERRORS_H

#include "bind/module.h"
#include "horovod.h"

/* Imports the exceptions. 0, or -1 with an exception set. */
int errors_init_module(void);

/* Sets the exception that fits: ValueError for a mistake of this rank, HorovodInternalError for what lies
 * between the ranks. NULL, for `return raise_status(&status)`. */
PyObject *raise_status(const hvd_status *status);

#endif
