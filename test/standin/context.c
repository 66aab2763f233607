/* context.c - see context.h. A primary context, once retained, lives until the process ends. */
#include "standin/context.h"

#include "standin/calls.h"
#include "standin/memory.h"
#include "standin/stream.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STACK_LIMIT = 16, VERSION = 13000 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int devices;
static struct CUctx_st contexts[DEVICES_LIMIT];

static _Thread_local struct CUctx_st *stack[STACK_LIMIT];
static _Thread_local int depth;

struct CUctx_st *context_current(void)
{
    return depth ? stack[depth - 1] : NULL;
}

struct CUctx_st *context_of(int device)
{
    return &contexts[device];
}

CUresult context_result(int device)
{
    return atomic_load(&contexts[device].result);
}

void context_break(int device, CUresult code, const char *why)
{
    int whole = CUDA_OK;
    fprintf(stderr, "stand-in GPU %d: %s; from now on its context returns error %d\n", device, why, code);
    atomic_compare_exchange_strong(&contexts[device].result, &whole, code);
}

/* ---- devices ------------------------------------------------------------------------------------------ */

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? (int)strtol(text, NULL, 10) : otherwise;
}

/* An entry that is not the number of a device ends the list, as CUDA has it. */
static void choose_devices(int physical)
{
    const char *at = getenv("CUDA_VISIBLE_DEVICES");
    for (devices = 0; devices < DEVICES_LIMIT && devices < physical; devices++) {
        char *end = NULL;
        long chosen = at ? strtol(at, &end, 10) : devices;
        if (end == at && at)
            return;
        if (chosen < 0 || chosen >= physical)
            return;
        contexts[devices].device = devices;
        contexts[devices].physical = (int)chosen;
        at = at && *end == ',' ? end + 1 : at ? "" : NULL;
    }
}

static void init_once(void)
{
    choose_devices(number("STANDIN_DEVICES", 2));
    memory_open(devices, (size_t)number("STANDIN_MEMORY_MB", 1024) << 20);
    stream_open(number("STANDIN_DELAY_US", 200), number("STANDIN_SEED", 1));
    calls_begin();
}

CUresult cuInit(unsigned flags)
{
    ENTER(cuInit, NEEDS_DRIVER);
    if (flags)
        return CUDA_INVALID_VALUE;
    pthread_once(&once, init_once);
    return devices ? CUDA_OK : CUDA_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version)
{
    ENTER(cuDriverGetVersion, NEEDS_NOTHING);
    *version = VERSION;
    return CUDA_OK;
}

CUresult cuDeviceGetCount(int *count)
{
    ENTER(cuDeviceGetCount, NEEDS_DRIVER);
    *count = devices;
    return CUDA_OK;
}

static CUresult check_device(int device)
{
    return device >= 0 && device < devices ? CUDA_OK : CUDA_INVALID_DEVICE;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER(cuDeviceGet, NEEDS_DRIVER);
    CHECK(check_device(ordinal));
    *device = ordinal;
    return CUDA_OK;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    ENTER(cuDeviceGetUuid_v2, NEEDS_DRIVER);
    CHECK(check_device(device));
    memset(uuid, 0, sizeof *uuid);
    snprintf(uuid->bytes, sizeof uuid->bytes, "standin-%d", contexts[device].physical);
    return CUDA_OK;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    ENTER(cuDeviceGetName, NEEDS_DRIVER);
    CHECK(check_device(device));
    snprintf(name, (size_t)length, "stand-in GPU");
    return CUDA_OK;
}

/* ---- contexts ----------------------------------------------------------------------------------------- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    ENTER(cuDevicePrimaryCtxRetain, NEEDS_DRIVER);
    CHECK(check_device(device));
    CHECK(context_result(device));
    atomic_store(&contexts[device].alive, true);
    *context = &contexts[device];
    return CUDA_OK;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    ENTER(cuDevicePrimaryCtxGetState, NEEDS_DRIVER);
    CHECK(check_device(device));
    *flags = 0;
    *active = atomic_load(&contexts[device].alive);
    return CUDA_OK;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    ENTER(cuCtxGetCurrent, NEEDS_DRIVER);
    *context = context_current();
    return CUDA_OK;
}

/* Replaces the top of the stack; NULL removes it. */
CUresult cuCtxSetCurrent(CUcontext context)
{
    ENTER(cuCtxSetCurrent, NEEDS_DRIVER);
    if (!context)
        depth -= depth > 0;
    else
        stack[depth ? depth - 1 : depth++] = context;
    return CUDA_OK;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    ENTER(cuCtxPushCurrent_v2, NEEDS_DRIVER);
    if (!context || depth == STACK_LIMIT)
        return CUDA_INVALID_VALUE;
    stack[depth++] = context;
    return CUDA_OK;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    ENTER(cuCtxPopCurrent_v2, NEEDS_DRIVER);
    if (!depth)
        return CUDA_INVALID_CONTEXT;
    depth--;
    if (context)
        *context = stack[depth];
    return CUDA_OK;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    ENTER(cuCtxGetDevice, NEEDS_CONTEXT);
    *device = context_current()->device;
    return CUDA_OK;
}

CUresult cuCtxSynchronize(void)
{
    ENTER(cuCtxSynchronize, NEEDS_CONTEXT);
    int device = context_current()->device;
    stream_finish_device(device);
    return context_result(device);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER(cuCtxGetStreamPriorityRange, NEEDS_CONTEXT);
    *least = 0;
    *greatest = -5;
    return CUDA_OK;
}
