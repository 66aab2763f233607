/* result.h - a tensor that the engine allocated, as a Python object. With the GIL held. */
#ifndef HVD_BIND_RESULT_H
#define HVD_BIND_RESULT_H

#include "bind/module.h"
#include "horovod.h"

#include <stdint.h>

/* Adds the type to the module. 0, or -1 with an exception set. */
int result_init_module(PyObject *module);

/* The results first ... end - 1, which the engine made, as a list of Result. NULL with an exception set. */
PyObject *result_list(hvd_handle *handle, int32_t first, int32_t end);

/* So many bytes of shared memory as a Result of uint8. NULL with an exception set. */
PyObject *result_shared(PyObject *module, PyObject *bytes);

#endif
