/* launch.c - calls of collectives, groups of them, and their launch as work of a stream; what tests order. */
#include "standin/nccl/communicator.h"

#include "standin/context.h"
#include "standin/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GROUPS = 16 };

/* The calls of one communicator in a group. */
struct group {
    struct work work;
    struct ncclComm *comm;
    cudaStream_t stream;
    unsigned ticket;
    int count, capacity;
    struct call *calls;
};

static _Thread_local struct {
    int depth;
    struct group *groups[MOST_GROUPS];
    int count;
    struct ncclComm *aborted[MOST_GROUPS];
    int aborted_count;
} open_here;

/* ---- what tests order --------------------------------------------------------------------------------- */

static const char *const symbols[] = {
#define CALL(type, member, symbol, parameters) #symbol,
    ALL_NCCL_CALLS(CALL)
#undef CALL
        "collective",
};

static atomic_int counts[NCCL_CALL_KINDS];
static atomic_bool one_at_a_time;
static struct {
    atomic_int call; /* NCCL_CALL_KINDS: none */
    atomic_int left; /* calls until it fails */
    atomic_int code;
} failure = {.call = NCCL_CALL_KINDS};

static int call_named(const char *symbol)
{
    int call = 0;
    while (call < NCCL_CALL_KINDS && strcmp(symbols[call], symbol) != 0)
        call++;
    if (call == NCCL_CALL_KINDS) {
        fprintf(stderr, "stand-in NCCL: there is no function %s\n", symbol);
        abort();
    }
    return call;
}

void standin_nccl_fail(const char *symbol, int n, ncclResult_t code)
{
    atomic_store(&failure.call, NCCL_CALL_KINDS);
    atomic_store(&failure.code, (int)code);
    atomic_store(&failure.left, n);
    atomic_store(&failure.call, call_named(symbol));
}

int standin_nccl_calls(const char *symbol)
{
    return atomic_load(&counts[call_named(symbol)]);
}

void standin_nccl_one_at_a_time(bool one)
{
    atomic_store(&one_at_a_time, one);
}

bool nccl_is_one_at_a_time(void)
{
    return atomic_load(&one_at_a_time);
}

static void configure(void)
{
    const char *ordered = getenv("STANDIN_NCCL_FAIL");
    char symbol[64] = "";
    int n = 0, code = NCCL_SYSTEM_ERROR;
    if (getenv("STANDIN_NCCL_ONE_AT_A_TIME"))
        standin_nccl_one_at_a_time(true);
    if (ordered && sscanf(ordered, "%63[^:]:%d:%d", symbol, &n, &code) >= 2) /* NOLINT(cert-err34-c) */
        standin_nccl_fail(symbol, n, (ncclResult_t)code);
}

ncclResult_t nccl_enter(enum nccl_call call)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, configure);
    atomic_fetch_add(&counts[call], 1);
    if (atomic_load(&failure.call) != (int)call || atomic_fetch_sub(&failure.left, 1) != 1)
        return NCCL_OK;
    return comm_fail(NULL, (ncclResult_t)atomic_load(&failure.code), "a test has ordered a failure");
}

/* ---- work of a stream --------------------------------------------------------------------------------- */

static atomic_bool occupied[DEVICES_LIMIT]; /* one at a time */

/* Returns true if the group may run now. */
static bool await_turn(const struct group *group, bool alone)
{
    struct ncclComm *comm = group->comm;
    int turns = 0;
    while (atomic_load(&comm->released) != group->ticket && !comm_given_up(comm))
        comm_pause(&turns);
    while (alone && !comm_given_up(comm)) {
        if (!atomic_exchange(&occupied[comm->device], true))
            return true;
        comm_pause(&turns);
    }
    return !comm_given_up(comm);
}

static void run_group(struct work *work)
{
    struct group *group = (struct group *)work;
    struct ncclComm *comm = group->comm;
    bool alone = nccl_is_one_at_a_time();
    device_count_running(comm->device, 1);
    if (await_turn(group, alone)) {
        collectives_run(comm, group->calls, group->count);
        if (alone)
            atomic_store(&occupied[comm->device], false);
    }
    device_count_running(comm->device, -1);
}

void group_free(struct group *group)
{
    free(group->calls);
    free(group);
}

static void release_group(struct work *work)
{
    struct group *group = (struct group *)work;
    struct ncclComm *comm = group->comm;
    group_free(group);
    atomic_fetch_add(&comm->released, 1); /* the communicator may be gone now */
}

void group_submit(struct group *group)
{
    struct ncclComm *comm = group->comm;
    group->work = (struct work){.run = run_group, .release = release_group};
    group->ticket = atomic_fetch_add(&comm->launched, 1);
    CUresult result = stream_submit(group->stream, &group->work);
    if (result)
        comm_fail(comm, NCCL_CUDA_ERROR, "Cuda failure %d", (int)result);
}

/* ---- groups ------------------------------------------------------------------------------------------- */

bool group_defers(struct ncclComm *comm)
{
    if (!open_here.depth)
        return false;
    if (open_here.aborted_count == MOST_GROUPS)
        abort();
    open_here.aborted[open_here.aborted_count++] = comm;
    return true;
}

ncclResult_t ncclGroupStart(void)
{
    ENTER_NCCL(ncclGroupStart);
    open_here.depth++;
    return NCCL_OK;
}

static ncclResult_t launch(struct group *group, ncclResult_t ordered)
{
    struct ncclComm *comm = group->comm;
    ncclResult_t result = ordered ? ordered : comm_check(comm);
    if (result) {
        group_free(group);
        return result;
    }
    if (comm->blocks) {
        group_submit(group);
        return (ncclResult_t)atomic_load(&comm->error);
    }
    pthread_mutex_lock(&comm->lock);
    atomic_store(&comm->busy, true);
    comm->pending = group;
    pthread_cond_signal(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    return NCCL_IN_PROGRESS;
}

static ncclResult_t end_group(ncclResult_t ordered)
{
    ncclResult_t result = NCCL_OK;
    for (int i = 0; i < open_here.count; i++) {
        ncclResult_t one = launch(open_here.groups[i], ordered);
        result = !result || result == NCCL_IN_PROGRESS ? one : result;
    }
    open_here.count = 0;
    for (int i = 0; i < open_here.aborted_count; i++)
        comm_reclaim(open_here.aborted[i]);
    open_here.aborted_count = 0;
    return result;
}

ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t ordered = nccl_enter(CALL_ncclGroupEnd);
    if (!open_here.depth)
        return comm_fail(NULL, NCCL_INVALID_USAGE, "ncclGroupEnd: not in a group call.");
    return --open_here.depth ? NCCL_OK : end_group(ordered);
}

static struct group *group_of(ncclComm_t comm, cudaStream_t stream)
{
    for (int i = 0; i < open_here.count; i++)
        if (open_here.groups[i]->comm == comm)
            return open_here.groups[i];
    struct group *group = calloc(1, sizeof *group);
    if (!group || open_here.count == MOST_GROUPS)
        abort();
    group->comm = comm;
    group->stream = stream;
    return open_here.groups[open_here.count++] = group;
}

static ncclResult_t add(ncclComm_t comm, cudaStream_t stream, struct call call)
{
    ncclResult_t result = comm_check(comm);
    if (result)
        return result;
    if (call.type < 0 || call.type > NCCL_BFLOAT16 || call.peer < 0 || call.peer >= comm->size)
        return comm_fail(NULL, NCCL_INVALID_ARGUMENT, "invalid type, root or peer");
    struct group *group = group_of(comm, stream);
    if (group->count == group->capacity) {
        group->capacity = group->capacity ? 2 * group->capacity : 16;
        group->calls = realloc(group->calls, (size_t)group->capacity * sizeof *group->calls);
        if (!group->calls)
            abort();
    }
    group->calls[group->count++] = call;
    return open_here.depth ? NCCL_OK : end_group(NCCL_OK);
}

/* ---- calls -------------------------------------------------------------------------------------------- */

static uint64_t address_of(const void *memory)
{
    return (uint64_t)(uintptr_t)memory;
}

static struct reduction reduction_of(ncclComm_t comm, ncclRedOp_t op)
{
    int i = (int)op - NCCL_AVERAGE - 1;
    if ((int)op == NCCL_AVERAGE && comm)
        return (struct reduction){NCCL_SUM, true, 1.0 / comm->size};
    return i >= 0 && comm ? comm->operators[i] : (struct reduction){.base = (int)op};
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    ENTER_NCCL(ncclAllReduce);
    return add(comm, stream,
               (struct call){ALL_REDUCE, address_of(from), address_of(to), count, (int)type,
                             reduction_of(comm, op), 0, 0});
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    ENTER_NCCL(ncclReduce);
    return add(comm, stream,
               (struct call){REDUCE, address_of(from), address_of(to), count, (int)type,
                             reduction_of(comm, op), root, 0});
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    ENTER_NCCL(ncclReduceScatter);
    return add(comm, stream,
               (struct call){REDUCE_SCATTER, address_of(from), address_of(to), count, (int)type,
                             reduction_of(comm, op), 0, 0});
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    ENTER_NCCL(ncclBroadcast);
    return add(comm, stream,
               (struct call){BROADCAST, address_of(from), address_of(to), count, (int)type, {0}, root, 0});
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    ENTER_NCCL(ncclAllGather);
    return add(comm, stream,
               (struct call){ALL_GATHER, address_of(from), address_of(to), count, (int)type, {0}, 0, 0});
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    ENTER_NCCL(ncclSend);
    return add(comm, stream, (struct call){SEND, address_of(from), 0, count, (int)type, {0}, peer, 0});
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    ENTER_NCCL(ncclRecv);
    return add(comm, stream, (struct call){RECEIVE, 0, address_of(to), count, (int)type, {0}, peer, 0});
}
