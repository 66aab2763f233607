/* standin_nccl.h - a libnccl.so.2 for machines without a GPU, over the stand-in for the driver (standin.h),
 * and what a test can ask of it in addition to NCCL's functions. The ranks are threads or processes of one
 * host.
 *
 * As with NCCL:
 *  - A collective is work of a stream, and occupies it until all ranks have come. Collectives of a
 * communicator run in the order of their launch. A group is one launch.
 *  - With blocking = 0 set-up and launches go on after the call has returned ncclInProgress. Until
 *    ncclCommGetAsyncError says ncclSuccess nothing may be on the stream, and the communicator refuses calls.
 *  - A rank whose peer has died or stopped waits until it calls ncclCommAbort. That frees what the
 * communicator runs, then waits for what all other communicators of this process run on the GPU, as cudaFree
 * does: those that have to be freed first belong into the same group of calls.
 *  - Two ranks on one GPU are refused.
 *
 * Stricter than NCCL: if ranks call different collectives, or with other counts, types or roots, all of them
 * get an error that says so, where NCCL hangs or corrupts memory.
 *
 * Environment, read with the first call:
 *   STANDIN_NCCL_ONE_AT_A_TIME=1        as standin_nccl_one_at_a_time
 *   STANDIN_NCCL_FAIL=symbol:n[:code]   as standin_nccl_fail; ncclSystemError if there is no code
 *
 * Missing: ncclCommSplit, registered memory, more than 16 ranks. */
#ifndef HVD_TEST_STANDIN_NCCL_H
#define HVD_TEST_STANDIN_NCCL_H

#include "backend/nccl_calls.h"

#include <stdbool.h>

#ifndef NCCL_H_
enum { NCCL_AVERAGE = 4, NCCL_INTERNAL_ERROR = 3 };
#endif

#define STANDIN_NCCL_VERSION 22707

/* The functions that only tests call. */
#define STANDIN_NCCL_CALLS(CALL)                                                                             \
    CALL(ncclResult_t, all_gather, ncclAllGather,                                                            \
         (const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,                    \
          cudaStream_t stream))                                                                              \
    CALL(ncclResult_t, reduce_scatter, ncclReduceScatter,                                                    \
         (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,    \
          cudaStream_t stream))                                                                              \
    CALL(ncclResult_t, send, ncclSend,                                                                       \
         (const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,                    \
          cudaStream_t stream))                                                                              \
    CALL(ncclResult_t, receive, ncclRecv,                                                                    \
         (void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream))

#define ALL_NCCL_CALLS(CALL) NCCL_CALLS(CALL) STANDIN_NCCL_CALLS(CALL)

#pragma GCC visibility push(default)

#ifndef NCCL_H_
#define DECLARE(type, member, symbol, parameters) type symbol parameters;
ALL_NCCL_CALLS(DECLARE)
#undef DECLARE
#endif

/* From now on the n-th call of this function by any thread returns the code. The symbol "collective": the
 * n-th collective that runs ends its communicator, on this rank, with the code, and leaves the output as it
 * is. */
void standin_nccl_fail(const char *symbol, int n, ncclResult_t code);

/* Number of calls of a function so far. */
int standin_nccl_calls(const char *symbol);

/* Collectives of a GPU exclude each other, as kernels do that fill it. */
void standin_nccl_one_at_a_time(bool one);

#pragma GCC visibility pop

#endif
