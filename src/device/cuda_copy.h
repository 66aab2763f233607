/* cuda_copy.h - the copies of a batch between one GPU and the host. Any thread. */
#ifndef HVD_DEVICE_CUDA_COPY_H
#define HVD_DEVICE_CUDA_COPY_H

#include "device/cuda.h"
#include "device/memory.h"

#include <stdbool.h>

/* A tensor that is no larger is packed with its neighbours. It has not been measured on a GPU: at 25 GB/s
 * this takes the bus 40 us, several times what starting a copy is said to take. */
#define CUDA_COPY_PACKED ((size_t)1 << 20)

/* The buffer of a GPU in which tensors are packed: long enough that one more copy does not matter. */
#define CUDA_COPY_BUFFER ((size_t)16 << 20)

/* Starts the copies on the stream of `use`, in order with all other work of that stream. */
hvd_code cuda_copy(const struct cuda_use *use, const struct memory_copy *copies, int count, bool to_device,
                   hvd_status *status);

/* Frees the buffers, each after what uses it. */
void cuda_copy_trim(void);

#endif
