/* nccl_calls.h - the functions of NVIDIA's NCCL that the engine calls, without NCCL's header: types,
 * constants and one row for each function. The rows are looked up in libnccl.so.2 at run time. A test
 * compiles this file with the real nccl.h, whose types then replace the ones below. Layouts are those of
 * NCCL 2.27.3 and later. */
#ifndef HVD_BACKEND_NCCL_CALLS_H
#define HVD_BACKEND_NCCL_CALLS_H

#include <stddef.h>

#define NCCL_OLDEST         22703 /* as ncclGetVersion returns it; before it a launch belongs to a thread */
#define NCCL_CONFIG_VERSION 21800 /* of the layout of ncclConfig_t; NCCL takes older ones */

/* The beginning of ncclConfig_t; later versions append to it, and `size` says how much there is. */
struct nccl_config {
    size_t size;
    unsigned magic;
    unsigned version; /* the one whose layout this is */
    int blocking;     /* 0: calls return before they have done their work */
    int cga_cluster_size, least_blocks, most_blocks;
    const char *network;
    int shares_resources;
};

#define NCCL_CONFIG_MAGIC 0xcafebeefU
#define NCCL_UNDEFINED    (-2147483647 - 1) /* in a configuration: NCCL decides */

#ifndef NCCL_H_ /* of nccl.h */
typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t, ncclScalarResidence_t;
typedef struct nccl_config ncclConfig_t;
#endif

enum {
    NCCL_OK = 0,
    NCCL_CUDA_ERROR = 1,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_IN_PROGRESS = 7, /* of a communicator that does not block */
};

enum {
    NCCL_INT8 = 0,
    NCCL_UINT8 = 1,
    NCCL_INT32 = 2,
    NCCL_UINT32 = 3,
    NCCL_INT64 = 4,
    NCCL_UINT64 = 5,
    NCCL_FLOAT16 = 6,
    NCCL_FLOAT32 = 7,
    NCCL_FLOAT64 = 8,
    NCCL_BFLOAT16 = 9,
};

enum {
    NCCL_SUM = 0,
    NCCL_PRODUCT = 1,
    NCCL_MAX = 2,
    NCCL_MIN = 3,
    NCCL_SCALAR_OF_HOST = 1, /* the factor of a scaled sum is read before the call returns */
};

/* CALL(type, member, symbol, parameters) */
#define NCCL_CALLS(CALL)                                                                                     \
    CALL(ncclResult_t, version, ncclGetVersion, (int *version))                                              \
    CALL(ncclResult_t, unique_id, ncclGetUniqueId, (ncclUniqueId * id))                                      \
    CALL(ncclResult_t, init, ncclCommInitRankConfig,                                                         \
         (ncclComm_t * comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config))                     \
    CALL(ncclResult_t, finalize, ncclCommFinalize, (ncclComm_t comm))                                        \
    CALL(ncclResult_t, destroy, ncclCommDestroy, (ncclComm_t comm))                                          \
    CALL(ncclResult_t, abort, ncclCommAbort, (ncclComm_t comm))                                              \
    CALL(ncclResult_t, async_error, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t * error))          \
    CALL(ncclResult_t, all_reduce, ncclAllReduce,                                                            \
         (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,    \
          cudaStream_t stream))                                                                              \
    CALL(ncclResult_t, broadcast, ncclBroadcast,                                                             \
         (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,          \
          cudaStream_t stream))                                                                              \
    CALL(ncclResult_t, reduce, ncclReduce,                                                                   \
         (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,           \
          ncclComm_t comm, cudaStream_t stream))                                                             \
    CALL(ncclResult_t, group_start, ncclGroupStart, (void))                                                  \
    CALL(ncclResult_t, group_end, ncclGroupEnd, (void))                                                      \
    CALL(                                                                                                    \
        ncclResult_t, scaled_sum, ncclRedOpCreatePreMulSum,                                                  \
        (ncclRedOp_t * op, void *factor, ncclDataType_t type, ncclScalarResidence_t where, ncclComm_t comm)) \
    CALL(ncclResult_t, op_destroy, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))                      \
    CALL(const char *, error_string, ncclGetErrorString, (ncclResult_t result))                              \
    CALL(const char *, last_error, ncclGetLastError, (ncclComm_t comm))

#endif
