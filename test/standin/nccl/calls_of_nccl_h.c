/* calls_of_nccl_h.c - compares backend/nccl_calls.h with the real nccl.h: it compiles, or the compiler names
 * the row or the constant that differs. */
#include <nccl.h>

#include "standin/nccl/standin_nccl.h"

#define SAME(type, member, symbol, parameters) type(*same_##member) parameters = symbol;
ALL_NCCL_CALLS(SAME)

#define SAME_VALUE(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " differs");
SAME_VALUE(NCCL_OK, ncclSuccess)
SAME_VALUE(NCCL_CUDA_ERROR, ncclUnhandledCudaError)
SAME_VALUE(NCCL_SYSTEM_ERROR, ncclSystemError)
SAME_VALUE(NCCL_INVALID_ARGUMENT, ncclInvalidArgument)
SAME_VALUE(NCCL_INVALID_USAGE, ncclInvalidUsage)
SAME_VALUE(NCCL_IN_PROGRESS, ncclInProgress)
SAME_VALUE(NCCL_INT8, ncclInt8)
SAME_VALUE(NCCL_UINT8, ncclUint8)
SAME_VALUE(NCCL_INT32, ncclInt32)
SAME_VALUE(NCCL_UINT32, ncclUint32)
SAME_VALUE(NCCL_INT64, ncclInt64)
SAME_VALUE(NCCL_UINT64, ncclUint64)
SAME_VALUE(NCCL_FLOAT16, ncclFloat16)
SAME_VALUE(NCCL_FLOAT32, ncclFloat32)
SAME_VALUE(NCCL_FLOAT64, ncclFloat64)
SAME_VALUE(NCCL_BFLOAT16, ncclBfloat16)
SAME_VALUE(NCCL_SUM, ncclSum)
SAME_VALUE(NCCL_PRODUCT, ncclProd)
SAME_VALUE(NCCL_MAX, ncclMax)
SAME_VALUE(NCCL_MIN, ncclMin)
SAME_VALUE(NCCL_SCALAR_OF_HOST, ncclScalarHostImmediate)
SAME_VALUE(NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT)
SAME_VALUE(sizeof(ncclUniqueId), 128)

#define SAME_PLACE(ours, theirs)                                                                             \
    SAME_VALUE(offsetof(struct nccl_config, ours), offsetof(ncclConfig_t, theirs))
SAME_PLACE(size, size)
SAME_PLACE(magic, magic)
SAME_PLACE(version, version)
SAME_PLACE(blocking, blocking)
SAME_PLACE(cga_cluster_size, cgaClusterSize)
SAME_PLACE(least_blocks, minCTAs)
SAME_PLACE(most_blocks, maxCTAs)
SAME_PLACE(network, netName)
SAME_PLACE(shares_resources, splitShare)
