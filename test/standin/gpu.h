/* gpu.h - what the tests of the stand-in share. They use CUDA's functions as programs do. */
#ifndef HVD_TEST_STANDIN_GPU_H
#define HVD_TEST_STANDIN_GPU_H

#include "standin/standin.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#define MUST(call) assert_int_equal(call, CUDA_OK)

/* Makes the primary context of a device the only one of this thread. */
static inline void gpu_use(int device)
{
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
}

static inline CUdeviceptr gpu_address(const void *host)
{
    return (CUdeviceptr)(uintptr_t)host;
}

static inline CUdeviceptr gpu_allocate(size_t bytes)
{
    CUdeviceptr address;
    MUST(cuMemAlloc_v2(&address, bytes));
    return address;
}

static inline CUstream gpu_stream(unsigned flags)
{
    CUstream stream;
    MUST(cuStreamCreateWithPriority(&stream, flags, 0));
    return stream;
}

static inline CUevent gpu_event(void)
{
    CUevent event;
    MUST(cuEventCreate(&event, CUDA_EVENT_DISABLE_TIMING));
    return event;
}

/* Page-locked memory of the host. */
static inline void *gpu_pinned(size_t bytes)
{
    void *memory;
    MUST(cuMemHostAlloc(&memory, bytes, CUDA_HOST_PORTABLE));
    return memory;
}

static inline void gpu_put(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    MUST(cuMemcpyAsync(to, gpu_address(from), bytes, stream));
}

/* Also waits for the stream. */
static inline void gpu_get(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    MUST(cuMemcpyAsync(gpu_address(to), from, bytes, stream));
    MUST(cuStreamSynchronize(stream));
}

/* Reads a word by a stream of its own, which is ordered with nothing. */
static inline uint32_t gpu_word(CUdeviceptr from)
{
    uint32_t word;
    CUstream stream = gpu_stream(CUDA_STREAM_NON_BLOCKING);
    gpu_get(&word, from, sizeof word, stream);
    MUST(cuStreamDestroy_v2(stream));
    return word;
}

#endif
