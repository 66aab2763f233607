/* cuda_calls.h - the functions of NVIDIA's driver that the engine calls, without CUDA's headers: types,
 * constants and one row for each function. The rows are looked up in libcuda.so.1 at run time. A test
 * compiles this file with the real cuda.h, whose types then replace the ones below. */
#ifndef HVD_DEVICE_CUDA_CALLS_H
#define HVD_DEVICE_CUDA_CALLS_H

#include <stddef.h>

#ifndef CUDA_VERSION /* of cuda.h */
typedef int CUresult, CUdevice, CUpointer_attribute, CUstreamCaptureStatus, CUstreamCaptureMode;
typedef unsigned long long CUdeviceptr; /* an address of a device or of the host */
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream; /* NULL: the default stream of the current device */
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct {
    char bytes[16];
} CUuuid;
#endif

/* Results that the engine distinguishes. */
enum {
    CUDA_OK = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_DEINITIALIZED = 4, /* the process is ending */
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_DEVICE = 101,
    CUDA_NOT_READY = 600, /* work is pending: not an error */
    CUDA_ILLEGAL_ADDRESS = 700,
    CUDA_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_LAUNCH_FAILED = 719,
    CUDA_CAPTURE_IMPLICIT = 906, /* the default stream, while another one of the device is captured */
};

enum {
    CUDA_STREAM_NON_BLOCKING = 1, /* not ordered with the default stream */
    CUDA_EVENT_BLOCKING_SYNC = 1, /* a thread that waits for it sleeps */
    CUDA_EVENT_DISABLE_TIMING = 2,
    CUDA_HOST_PORTABLE = 1, /* page-locked for all devices */
    CUDA_POINTER_MEMORY_TYPE = 2,
    CUDA_POINTER_DEVICE_ORDINAL = 9,
    CUDA_MEMORY_HOST = 1,
    CUDA_MEMORY_DEVICE = 2,
    CUDA_NOT_CAPTURING = 0,
    CUDA_CAPTURE_RELAXED = 2, /* calls of this thread are allowed while another thread captures */
};

/* CALL(member, symbol, parameters); all return CUresult. */
#define CUDA_CALLS(CALL)                                                                                     \
    CALL(init, cuInit, (unsigned flags))                                                                     \
    CALL(driver_version, cuDriverGetVersion, (int *version))                                                 \
    CALL(error_name, cuGetErrorName, (CUresult result, const char **text))                                   \
    CALL(error_string, cuGetErrorString, (CUresult result, const char **text))                               \
    CALL(device_count, cuDeviceGetCount, (int *count))                                                       \
    CALL(device_get, cuDeviceGet, (CUdevice * device, int ordinal))                                          \
    CALL(device_name, cuDeviceGetName, (char *name, int length, CUdevice device))                            \
    CALL(device_uuid, cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                                  \
    CALL(primary_retain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                   \
    CALL(ctx_push, cuCtxPushCurrent_v2, (CUcontext context))                                                 \
    CALL(ctx_pop, cuCtxPopCurrent_v2, (CUcontext * context))                                                 \
    CALL(stream_priorities, cuCtxGetStreamPriorityRange, (int *least, int *greatest))                        \
    CALL(mem_alloc, cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))                                    \
    CALL(mem_free, cuMemFree_v2, (CUdeviceptr address))                                                      \
    CALL(host_register, cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned flags))                  \
    CALL(host_unregister, cuMemHostUnregister, (void *memory))                                               \
    CALL(pointer_attribute, cuPointerGetAttribute,                                                           \
         (void *value, CUpointer_attribute attribute, CUdeviceptr address))                                  \
    CALL(copy, cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))             \
    CALL(set8, cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream))        \
    CALL(set16, cuMemsetD16Async, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream))     \
    CALL(set32, cuMemsetD32Async, (CUdeviceptr to, unsigned value, size_t count, CUstream stream))           \
    CALL(stream_create, cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority))       \
    CALL(stream_destroy, cuStreamDestroy_v2, (CUstream stream))                                              \
    CALL(stream_synchronize, cuStreamSynchronize, (CUstream stream))                                         \
    CALL(stream_wait, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                   \
    CALL(stream_capturing, cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus * status))           \
    CALL(capture_mode, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode))                      \
    CALL(event_create, cuEventCreate, (CUevent * event, unsigned flags))                                     \
    CALL(event_record, cuEventRecord, (CUevent event, CUstream stream))                                      \
    CALL(event_query, cuEventQuery, (CUevent event))                                                         \
    CALL(event_synchronize, cuEventSynchronize, (CUevent event))                                             \
    CALL(event_destroy, cuEventDestroy_v2, (CUevent event))                                                  \
    CALL(module_load, cuModuleLoadData, (CUmodule * module, const void *image))                              \
    CALL(module_function, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))   \
    CALL(launch, cuLaunchKernel,                                                                             \
         (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,          \
          unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters,           \
          void **extra))

#endif
