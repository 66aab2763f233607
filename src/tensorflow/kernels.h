/* kernels.h - what runs when TensorFlow comes to one of the operations. */
#ifndef HVD_TENSORFLOW_KERNELS_H
#define HVD_TENSORFLOW_KERNELS_H

#include "native/entry.h"
#include "tensorflow/api.h"

/* How the engine is reached; NULL until horovod_tensorflow_bind, before which no operation can run. */
extern const struct entry_table *engine;

/* Of the collectives: asynchronous, or holding TensorFlow's thread until they are done. */
void collectives_register(bool asynchronous);

/* Of the operations that say where this process stands. */
void placement_register(void);

/* Registers one kernel for the CPU; complains on stderr, as all happens while the library is loaded. */
void kernel_register(const char *operation, TF_KernelBuilder *builder);

/* An attribute; 0 with *failure where there is none. */
int64_t read_integer(TF_OpKernelConstruction *construction, const char *name, TF_Status *failure);

/* Ends a kernel's run with an error. */
void kernel_fail(TF_OpKernelContext *context, const hvd_status *status);

#endif
