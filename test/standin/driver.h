/* driver.h - every function of the stand-in for NVIDIA's driver: the ones that the engine calls, and the ones
 * that only tests call. */
#ifndef HVD_TEST_STANDIN_DRIVER_H
#define HVD_TEST_STANDIN_DRIVER_H

#include "device/cuda_calls.h"

#ifndef CUDA_VERSION /* of cuda.h */
typedef void (*CUhostFn)(void *argument);
typedef struct {
    char reserved[64];
} CUipcMemHandle;
#endif

/* RESULT(name, code, name in CUDA, text), in addition to those of cuda_calls.h. */
#define STANDIN_RESULTS(RESULT)                                                                              \
    RESULT(CUDA_INVALID_CONTEXT, 201, CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                  \
    RESULT(CUDA_INVALID_PTX, 218, CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed")                    \
    RESULT(CUDA_INVALID_HANDLE, 400, CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                   \
    RESULT(CUDA_NOT_FOUND, 500, CUDA_ERROR_NOT_FOUND, "named symbol not found")                              \
    RESULT(CUDA_LAUNCH_TIMEOUT, 702, CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated")   \
    RESULT(CUDA_ALREADY_REGISTERED, 712, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,                          \
           "part or all of the requested memory range is already mapped")                                    \
    RESULT(CUDA_NOT_REGISTERED, 713, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,                                  \
           "pointer does not correspond to a registered memory region")                                      \
    RESULT(CUDA_MISALIGNED_ADDRESS, 716, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address")                \
    RESULT(CUDA_NOT_PERMITTED, 800, CUDA_ERROR_NOT_PERMITTED, "operation not permitted")                     \
    RESULT(CUDA_NOT_SUPPORTED, 801, CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                     \
    RESULT(CUDA_CAPTURE_UNSUPPORTED, 900, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,                             \
           "operation not permitted when stream is capturing")                                               \
    RESULT(CUDA_CAPTURED_EVENT, 907, CUDA_ERROR_CAPTURED_EVENT,                                              \
           "operation not permitted on an event last recorded in a capturing stream")                        \
    RESULT(CUDA_UNKNOWN, 999, CUDA_ERROR_UNKNOWN, "unknown error")

enum {
#define RESULT(name, code, ...) name = code,
    STANDIN_RESULTS(RESULT)
#undef RESULT
        CUDA_STREAM_LEGACY = 1,
    CUDA_STREAM_PER_THREAD = 2,
    CUDA_CAPTURE_GLOBAL = 0,
    CUDA_CAPTURING = 1,
    CUDA_POINTER_CONTEXT = 1,
    CUDA_IPC_LAZY_PEER_ACCESS = 1,
};

#define STANDIN_CALLS(CALL)                                                                                  \
    CALL(primary_state, cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active))         \
    CALL(ctx_current, cuCtxGetCurrent, (CUcontext * context))                                                \
    CALL(ctx_set, cuCtxSetCurrent, (CUcontext context))                                                      \
    CALL(ctx_device, cuCtxGetDevice, (CUdevice * device))                                                    \
    CALL(ctx_synchronize, cuCtxSynchronize, (void))                                                          \
    CALL(mem_info, cuMemGetInfo_v2, (size_t * left, size_t * total))                                         \
    CALL(mem_range, cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t * bytes, CUdeviceptr address))      \
    CALL(host_alloc, cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags))                          \
    CALL(host_free, cuMemFreeHost, (void *memory))                                                           \
    CALL(stream_query, cuStreamQuery, (CUstream stream))                                                     \
    CALL(host_function, cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *argument))              \
    CALL(module_unload, cuModuleUnload, (CUmodule module))                                                   \
    CALL(ipc_get, cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr address))                         \
    CALL(ipc_open, cuIpcOpenMemHandle_v2, (CUdeviceptr * address, CUipcMemHandle handle, unsigned flags))    \
    CALL(ipc_close, cuIpcCloseMemHandle, (CUdeviceptr address))

#define ALL_CALLS(CALL) CUDA_CALLS(CALL) STANDIN_CALLS(CALL)

#define DECLARE(member, symbol, parameters) __attribute__((visibility("default"))) CUresult symbol parameters;
ALL_CALLS(DECLARE)
#undef DECLARE

#endif
