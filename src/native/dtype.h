/* dtype.h - converts element types from and to the numbers in the C interfaces of frameworks. Any thread. */
#ifndef HVD_NATIVE_DTYPE_H
#define HVD_NATIVE_DTYPE_H

#include "horovod.h"

enum framework { FRAMEWORK_XLA, FRAMEWORK_TENSORFLOW, FRAMEWORK_MXNET, FRAMEWORKS };

/* Returns the element type; for an unknown number, one that hvd_submit refuses. */
hvd_dtype dtype_of(enum framework framework, int number);

/* Returns the framework's number; -1 if it has no such type. */
int dtype_number(enum framework framework, hvd_dtype dtype);

#endif
