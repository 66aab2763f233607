/* process_set.h - hvd_process_set_* for Python. */
#ifndef HVD_BIND_PROCESS_SET_H
#define HVD_BIND_PROCESS_SET_H

#include "bind/python.h"
#include "horovod.h"

PyObject *process_set_add(hvd_context *context, PyObject *ranks); /* a sequence of int; gives the id */
PyObject *process_set_remove(hvd_context *context, PyObject *id);
PyObject *process_set_ids(hvd_context *context);
PyObject *process_set_ranks(hvd_context *context, PyObject *id);

#endif
