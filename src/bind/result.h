/* result.h - defines the Python type Result, which is a tensor that the engine allocated. Any Python thread
 * calls these functions with the GIL held. */
#ifndef HVD_BIND_RESULT_H
#define HVD_BIND_RESULT_H

#include "bind/python.h"
#include "horovod.h"

#include <stdint.h>

/* Adds the type to the module. Returns 0, or -1 with an exception set. */
int result_init_module(PyObject *module);

/* Returns the results first ... end - 1, which the engine made, as a list of Result, or NULL with an
 * exception set. */
PyObject *result_list(hvd_handle *handle, int32_t first, int32_t end);

/* Is a function of the module. Returns this many zeroed bytes of shared memory as a Result of uint8, or NULL
 * with an exception set. */
PyObject *result_shared(PyObject *module, PyObject *bytes);

#endif
