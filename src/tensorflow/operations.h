/* operations.h - the function that Python calls in this library once TensorFlow has loaded it. In the thread
 * that imports horovod.tensorflow. */
#ifndef HVD_TENSORFLOW_OPERATIONS_H
#define HVD_TENSORFLOW_OPERATIONS_H

#include "native/entry.h"

/* Gives the operations the engine, before the first of them runs. *asynchronous: 1 if kernels return before
 * the collective is done. Returns NULL, or a text with the error. */
const char *horovod_tensorflow_bind(const struct entry_table *table, int *asynchronous);

#endif
