/* result.h - the Python type of a tensor that the engine allocated, handed over by DLPack or as a buffer. */
#ifndef HVD_BIND_RESULT_H
#define HVD_BIND_RESULT_H

#include "bind/python.h"
#include "horovod.h"

/* Adds the type to the module. 0, or -1 with an exception set. */
int result_init_module(PyObject *module);

/* The results that the engine made, as a list of Result. NULL with an exception set. */
PyObject *result_list(hvd_handle *handle, int32_t count);

/* So many bytes of shared memory as a Result of uint8. NULL with an exception set. */
PyObject *result_shared(PyObject *module, PyObject *bytes);

#endif
