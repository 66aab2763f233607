/* work.c - what a stream does except kernels: copies, fills and functions of the host. Any thread. */
#include "standin/calls.h"
#include "standin/context.h"
#include "standin/memory.h"
#include "standin/stream.h"

#include <stdlib.h>
#include <string.h>

static bool is_pageable(uint64_t address)
{
    return !memory_is_device(address) && !memory_region(address).end;
}

/* ---- copies ------------------------------------------------------------------------------------------- */

struct copy {
    struct work work;
    uint64_t to, from;
    size_t bytes;
    char *taken; /* the bytes, if they were pageable memory of the host */
};

static void run_copy(struct work *work)
{
    const struct copy *copy = (const struct copy *)work;
    void *to = memory_reach(copy->to, copy->bytes);
    const void *from = copy->taken ? copy->taken : memory_reach(copy->from, copy->bytes);
    if (to && from)
        memmove(to, from, copy->bytes);
    else
        context_break(work->device, CUDA_ILLEGAL_ADDRESS,
                      to ? "a copy reads memory that is not allocated"
                         : "a copy writes memory that is not allocated");
}

static void release_copy(struct work *work)
{
    free(((struct copy *)work)->taken);
    free(work);
}

/* As CUDA does, it reads pageable memory of the host before it returns, and has written such memory when it
 * returns. */
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    ENTER(cuMemcpyAsync, NEEDS_CONTEXT);
    if (!bytes)
        return CUDA_OK;
    struct copy *copy = malloc(sizeof *copy);
    char *taken = is_pageable(from) ? malloc(bytes) : NULL;
    if (!copy || (is_pageable(from) && !taken)) {
        free(copy);
        free(taken);
        return CUDA_OUT_OF_MEMORY;
    }
    if (taken)
        memcpy(taken, (const void *)from, bytes);
    *copy = (struct copy){{.run = run_copy, .release = release_copy}, to, from, bytes, taken};
    CHECK(stream_submit(stream, &copy->work));
    return is_pageable(to) ? stream_finish(stream) : CUDA_OK;
}

/* ---- fills -------------------------------------------------------------------------------------------- */

struct fill {
    struct work work;
    uint64_t to;
    unsigned value;
    size_t width; /* bytes of the value that are written, `count` times */
    size_t count;
};

static void run_fill(struct work *work)
{
    const struct fill *fill = (const struct fill *)work;
    char *to = memory_reach(fill->to, fill->width * fill->count);
    if (!to)
        context_break(work->device, CUDA_ILLEGAL_ADDRESS, "a fill writes memory that is not allocated");
    for (size_t i = 0; i < fill->count && to; i++)
        memcpy(to + i * fill->width, &fill->value, fill->width); /* little-endian */
}

static void release_plain(struct work *work)
{
    free(work);
}

static CUresult submit_fill(uint64_t to, unsigned value, size_t width, size_t count, CUstream stream)
{
    if (to % width)
        return CUDA_INVALID_VALUE;
    if (!count)
        return CUDA_OK;
    struct fill *fill = malloc(sizeof *fill);
    if (!fill)
        return CUDA_OUT_OF_MEMORY;
    *fill = (struct fill){{.run = run_fill, .release = release_plain}, to, value, width, count};
    return stream_submit(stream, &fill->work);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    ENTER(cuMemsetD8Async, NEEDS_CONTEXT);
    return submit_fill(to, value, 1, count, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream)
{
    ENTER(cuMemsetD16Async, NEEDS_CONTEXT);
    return submit_fill(to, value, 2, count, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    ENTER(cuMemsetD32Async, NEEDS_CONTEXT);
    return submit_fill(to, value, 4, count, stream);
}

/* ---- functions of the host ---------------------------------------------------------------------------- */

struct host_call {
    struct work work;
    CUhostFn function;
    void *argument;
};

static void run_host_call(struct work *work)
{
    const struct host_call *call = (const struct host_call *)work;
    calls_forbid(true);
    call->function(call->argument);
    calls_forbid(false);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *argument)
{
    ENTER(cuLaunchHostFunc, NEEDS_CONTEXT);
    struct host_call *call = malloc(sizeof *call);
    if (!call)
        return CUDA_OUT_OF_MEMORY;
    *call = (struct host_call){{.run = run_host_call, .release = release_plain}, function, argument};
    return stream_submit(stream, &call->work);
}
