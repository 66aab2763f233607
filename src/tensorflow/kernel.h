/* kernel.h - functions that all kernels share: access to the engine, and errors in TensorFlow's terms. Any
 * thread of TensorFlow. */
#ifndef HVD_TENSORFLOW_KERNEL_H
#define HVD_TENSORFLOW_KERNEL_H

#include "native/entry.h"
#include "tensorflow/api.h"

/* The engine's functions; NULL until horovod_tensorflow_bind, before which no operation can run. */
extern const struct entry_table *engine;

/* Registers one kernel for the CPU; writes errors to stderr, as it runs while the library is loaded. */
void kernel_register(const char *operation, TF_KernelBuilder *builder);

/* Reads an attribute; returns 0 and sets *failure if there is none. */
int64_t kernel_read_integer(TF_OpKernelConstruction *construction, const char *name, TF_Status *failure);

/* Ends a kernel's run with an error. */
void kernel_fail(TF_OpKernelContext *context, const hvd_status *status);

#endif
