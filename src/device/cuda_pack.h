/* cuda_pack.h - moves many pieces of a GPU's memory into one buffer of that GPU, or back, by one kernel
 * instead of a copy for each of them. Any thread. */
#ifndef HVD_DEVICE_CUDA_PACK_H
#define HVD_DEVICE_CUDA_PACK_H

#include "device/cuda.h"

#include <stdbool.h>

struct cuda_piece {
    CUdeviceptr data;
    unsigned offset; /* in the buffer */
    unsigned bytes;  /* more than 0 */
};

/* Loads the kernels with the first call for a GPU, which may take long. Returns false if the driver refuses
 * them, which is logged once for each GPU. */
bool cuda_can_pack(const struct cuda_use *use);

/* On the stream of `use`, whose GPU has all the memory; if it can pack. The pieces may be freed on return. */
CUresult cuda_pack(const struct cuda_use *use, CUdeviceptr buffer, const struct cuda_piece *pieces,
                   int count);
CUresult cuda_unpack(const struct cuda_use *use, CUdeviceptr buffer, const struct cuda_piece *pieces,
                     int count);

#endif
