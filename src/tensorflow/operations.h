/* operations.h - what Python calls in this library once TensorFlow has loaded it. */
#ifndef HVD_TENSORFLOW_OPERATIONS_H
#define HVD_TENSORFLOW_OPERATIONS_H

#include "native/entry.h"

/* Gives the operations the engine, before the first of them runs. *asynchronous: whether kernels return
 * before the collective is done. NULL, or a text that says what is wrong. */
const char *horovod_tensorflow_bind(const struct entry_table *table, int *asynchronous);

#endif
