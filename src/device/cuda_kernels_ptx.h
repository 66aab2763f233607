/* cuda_kernels_ptx.h - the kernels of cuda_kernels.cu in PTX, which the driver compiles for its GPU. */
#ifndef HVD_DEVICE_CUDA_KERNELS_PTX_H
#define HVD_DEVICE_CUDA_KERNELS_PTX_H

extern const char cuda_kernels_ptx[];

#endif
