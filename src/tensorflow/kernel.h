/* kernel.h - what the kernels share: how they reach the engine, and TensorFlow's words for errors. */
#ifndef HVD_TENSORFLOW_KERNEL_H
#define HVD_TENSORFLOW_KERNEL_H

#include "native/entry.h"
#include "tensorflow/api.h"

/* How the engine is reached; NULL until horovod_tensorflow_bind, before which no operation can run. */
extern const struct entry_table *engine;

/* Registers one kernel for the CPU; complains on stderr, as all happens while the library is loaded. */
void kernel_register(const char *operation, TF_KernelBuilder *builder);

/* An attribute; 0 with *failure where there is none. */
int64_t read_integer(TF_OpKernelConstruction *construction, const char *name, TF_Status *failure);

/* Ends a kernel's run with an error. */
void kernel_fail(TF_OpKernelContext *context, const hvd_status *status);

#endif
