/* cuda.h - NVIDIA's driver, which is opened at run time: its functions, the context and the stream of each
 * GPU that the engine uses, and the texts of its errors. Any thread. A child of fork() can't use a driver
 * that its parent has opened. */
#ifndef HVD_DEVICE_CUDA_H
#define HVD_DEVICE_CUDA_H

#include "device/cuda_calls.h"
#include "horovod.h"

#include <stdint.h>

enum { CUDA_MOST_GPUS = 64 }; /* of a process */

struct cuda {
    int32_t devices; /* how many GPUs this process sees */
#define MEMBER(member, symbol, parameters) CUresult(*member) parameters;
    CUDA_CALLS(MEMBER)
#undef MEMBER
};

/* Opens the driver with the first call, but no context. Returns NULL, with the reason, if there is no driver
 * or no GPU, or if the parent process has opened it. */
const struct cuda *cuda_open(hvd_status *reason);

/* A piece of code that uses one GPU: its context is that of the calling thread, and its calls are allowed
 * while another thread captures a graph. */
struct cuda_use {
    const struct cuda *cuda;
    CUstream stream; /* the engine's own of this GPU, not ordered with the default stream */
    int32_t device_id;
    CUstreamCaptureMode before; /* of the thread */
};

/* The first use of a GPU opens its context, or shares the one that the framework has opened. */
hvd_code cuda_enter(struct cuda_use *use, int32_t device_id, hvd_status *status);
void cuda_leave(struct cuda_use *use);

/* Writes "<what> failed: <the driver's text>", and returns the code. HVD_OK if the driver returned no error.
 */
hvd_code cuda_check(const struct cuda *cuda, CUresult result, const char *what, hvd_status *status);

#endif
