/* dtype.h - element types by the numbers that the frameworks' C interfaces have for them. Any thread. */
#ifndef HVD_NATIVE_DTYPE_H
#define HVD_NATIVE_DTYPE_H

#include "horovod.h"

enum framework { FRAMEWORK_XLA, FRAMEWORK_TENSORFLOW, FRAMEWORK_MXNET, FRAMEWORKS };

/* One that hvd_submit refuses where the engine has no such type. */
hvd_dtype dtype_of(enum framework framework, int number);

/* The framework's number; -1 where it has no such type. */
int dtype_number(enum framework framework, hvd_dtype dtype);

#endif
