/* errors.h - statuses of the engine as Python exceptions. */
#ifndef HVD_BIND_ERRORS_H
#define HVD_BIND_ERRORS_H

#include "horovod.h"
#include "python.h"

int errors_init_module(void); /* finds the exception classes; 0 or -1 */

/* Sets the exception that fits: ValueError for a mistake of this rank, HorovodInternalError for all that lies
 * between the ranks. Returns NULL, for `return raise_status(&status)`. */
PyObject *raise_status(const hvd_status *status);

#endif
