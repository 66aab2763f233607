/* result.h - the Python type of a result that the engine allocated: a tensor of its own, handed over by
 * DLPack. */
#ifndef HVD_BIND_RESULT_H
#define HVD_BIND_RESULT_H

#include "horovod.h"
#include "python.h"

int result_init_module(PyObject *module); /* 0 or -1 */

/* Takes the tensor's memory over, also when it fails. */
PyObject *result_new(const hvd_tensor *tensor);

#endif
