/* communicator.c - unique ids, set-up, errors, abort and end of communicators. What the ranks share is a file
 * in memory, which they open by the unique id; its maker closes it once all of them have it. */
#include "standin/nccl/communicator.h"

#include "standin/driver.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static _Thread_local char last_error[256];

ncclResult_t comm_fail(struct ncclComm *comm, ncclResult_t code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    if (comm && !atomic_exchange(&comm->failing, true)) {
        memcpy(comm->text, last_error, sizeof comm->text);
        atomic_store(&comm->error, (int)code);
    }
    return code;
}

bool comm_given_up(const struct ncclComm *comm)
{
    return atomic_load(&comm->aborted) || atomic_load(&comm->error);
}

void comm_pause(int *turns)
{
    int64_t pause = *turns < 20 ? 20000 : *turns < 100 ? 100000 : 1000000;
    ++*turns;
    nanosleep(&(struct timespec){0, pause}, NULL);
}

bool comm_meet(struct ncclComm *comm)
{
    struct shared *shared = comm->shared;
    int generation = atomic_load(&shared->generation), turns = 0;
    if (atomic_fetch_add(&shared->arrived, 1) + 1 == comm->size) {
        atomic_store(&shared->arrived, 0);
        atomic_fetch_add(&shared->generation, 1);
    }
    while (atomic_load(&shared->generation) == generation && !comm_given_up(comm))
        comm_pause(&turns);
    return !comm_given_up(comm);
}

ncclResult_t comm_check(struct ncclComm *comm)
{
    if (!comm)
        return comm_fail(NULL, NCCL_INVALID_ARGUMENT, "the communicator is NULL");
    if (atomic_load(&comm->error))
        return (ncclResult_t)atomic_load(&comm->error);
    if (atomic_load(&comm->busy))
        return comm_fail(NULL, NCCL_INVALID_ARGUMENT,
                         "Attempt to use communicator before the previous operation returned ncclSuccess");
    return NCCL_OK;
}

/* ---- unique ids --------------------------------------------------------------------------------------- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    ENTER_NCCL(ncclGetUniqueId);
    int file = memfd_create("standin-nccl", MFD_CLOEXEC);
    memset(id, 0, sizeof *id);
    if (file < 0 || ftruncate(file, sizeof(struct shared)))
        return comm_fail(NULL, NCCL_SYSTEM_ERROR, "no memory for a communicator");
    snprintf(id->internal, sizeof id->internal, "/proc/%d/fd/%d", (int)getpid(), file);
    return NCCL_OK;
}

static ncclResult_t open_shared(struct ncclComm *comm, const ncclUniqueId *id)
{
    int pid = -1, made = -1;
    sscanf(id->internal, "/proc/%d/fd/%d", &pid, &made); /* NOLINT(cert-err34-c) */
    comm->made = pid == getpid() ? made : -1;
    int file = open(id->internal, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return comm_fail(NULL, NCCL_SYSTEM_ERROR, "the process that has made the unique id is gone");
    comm->shared = mmap(NULL, sizeof *comm->shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return comm->shared == MAP_FAILED ? comm_fail(NULL, NCCL_SYSTEM_ERROR, "no memory for a communicator")
                                      : NCCL_OK;
}

/* ---- set-up ------------------------------------------------------------------------------------------- */

/* Until all ranks have come. */
static void join(struct ncclComm *comm)
{
    struct shared *shared = comm->shared;
    int turns = 0;
    atomic_fetch_add(&shared->joined, 1);
    while (atomic_load(&shared->joined) < comm->size && !comm_given_up(comm))
        comm_pause(&turns);
    if (comm_given_up(comm))
        return;
    if (comm->made >= 0 && !atomic_exchange(&shared->closed, true))
        close(comm->made);
    const char *own = shared->gpus[comm->rank];
    for (int rank = 0; rank < comm->size; rank++)
        if (rank != comm->rank && !memcmp(shared->gpus[rank], own, sizeof shared->gpus[rank]))
            comm_fail(comm, NCCL_INVALID_USAGE,
                      "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x", comm->rank, rank,
                      (unsigned)comm->device);
}

static void wait_for_groups(const struct ncclComm *comm)
{
    int turns = 0;
    while (atomic_load(&comm->released) != atomic_load(&comm->launched))
        comm_pause(&turns);
}

/* Does late what a call of a communicator that does not block leaves. */
static void *serve(void *argument)
{
    struct ncclComm *comm = argument;
    unsigned seed = (unsigned)comm->rank;
    join(comm);
    atomic_store(&comm->busy, false);
    pthread_mutex_lock(&comm->lock);
    while (!comm->ends) {
        struct group *group = comm->pending;
        if (!group && !comm->finalizes) {
            pthread_cond_wait(&comm->changed, &comm->lock);
            continue;
        }
        comm->pending = NULL;
        pthread_mutex_unlock(&comm->lock);
        nanosleep(&(struct timespec){0, rand_r(&seed) % 100000}, NULL);
        if (group)
            group_submit(group);
        else
            wait_for_groups(comm);
        pthread_mutex_lock(&comm->lock);
        comm->finalizes = false;
        atomic_store(&comm->busy, false);
    }
    if (comm->pending)
        group_free(comm->pending);
    pthread_mutex_unlock(&comm->lock);
    return NULL;
}

static void free_comm(struct ncclComm *comm)
{
    if (comm->shared)
        munmap(comm->shared, sizeof *comm->shared);
    pthread_cond_destroy(&comm->changed);
    pthread_mutex_destroy(&comm->lock);
    free(comm);
}

static ncclResult_t set_up(struct ncclComm *comm, const ncclUniqueId *id)
{
    CUuuid uuid;
    if (cuCtxGetDevice(&comm->device) || cuDeviceGetUuid_v2(&uuid, comm->device))
        return comm_fail(NULL, NCCL_CUDA_ERROR, "Cuda failure: no context is current");
    ncclResult_t result = open_shared(comm, id);
    if (result)
        return result;
    memcpy(comm->shared->gpus[comm->rank], &uuid, sizeof uuid);
    if (comm->blocks) {
        join(comm);
        return (ncclResult_t)atomic_load(&comm->error);
    }
    atomic_store(&comm->busy, true);
    if (pthread_create(&comm->server, NULL, serve, comm))
        return comm_fail(NULL, NCCL_SYSTEM_ERROR, "no thread");
    return NCCL_IN_PROGRESS;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    ENTER_NCCL(ncclCommInitRankConfig);
    if (config && (config->magic != NCCL_CONFIG_MAGIC || config->size < sizeof(struct nccl_config)))
        return comm_fail(NULL, NCCL_INVALID_ARGUMENT, "ncclConfig_t argument not initialized");
    if (size > MOST_RANKS || rank < 0 || rank >= size)
        return comm_fail(NULL, NCCL_INVALID_ARGUMENT, "Invalid rank requested : %d/%d", rank, size);
    struct ncclComm *made = calloc(1, sizeof *made);
    if (!made)
        return comm_fail(NULL, NCCL_SYSTEM_ERROR, "no memory for a communicator");
    made->rank = rank;
    made->size = size;
    made->blocks = !config || config->blocking;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    ncclResult_t result = set_up(made, &id);
    *comm = made;
    if (result && result != NCCL_IN_PROGRESS) {
        free_comm(made);
        *comm = NULL;
    }
    return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    ENTER_NCCL(ncclCommGetAsyncError);
    bool busy = atomic_load(&comm->busy);
    *error = (ncclResult_t)atomic_load(&comm->error);
    if (!*error && busy)
        *error = NCCL_IN_PROGRESS;
    return NCCL_OK;
}

/* ---- the end ------------------------------------------------------------------------------------------ */

void comm_reclaim(struct ncclComm *comm)
{
    int turns = 0;
    if (!comm->blocks) {
        pthread_mutex_lock(&comm->lock);
        comm->ends = true;
        pthread_cond_signal(&comm->changed);
        pthread_mutex_unlock(&comm->lock);
        pthread_join(comm->server, NULL);
    }
    wait_for_groups(comm);
    while (device_is_running(comm->device))
        comm_pause(&turns);
    free_comm(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    ENTER_NCCL(ncclCommAbort);
    if (!comm)
        return NCCL_OK;
    atomic_store(&comm->aborted, true);
    if (!group_defers(comm))
        comm_reclaim(comm);
    return NCCL_OK;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ENTER_NCCL(ncclCommFinalize);
    ncclResult_t result = comm_check(comm);
    if (result)
        return result;
    if (comm->blocks) {
        wait_for_groups(comm);
        return NCCL_OK;
    }
    pthread_mutex_lock(&comm->lock);
    atomic_store(&comm->busy, true);
    comm->finalizes = true;
    pthread_cond_signal(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    return NCCL_IN_PROGRESS;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    ENTER_NCCL(ncclCommDestroy);
    if (!comm)
        return NCCL_OK;
    wait_for_groups(comm);
    comm_reclaim(comm);
    return NCCL_OK;
}

/* ---- operators and texts ------------------------------------------------------------------------------ */

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *factor, ncclDataType_t type,
                                      ncclScalarResidence_t where, ncclComm_t comm)
{
    ENTER_NCCL(ncclRedOpCreatePreMulSum);
    ncclResult_t result = comm_check(comm);
    if (result)
        return result;
    int i = 0;
    while (i < MOST_OPERATORS && comm->operator_used[i])
        i++;
    if (i == MOST_OPERATORS || (int)where != NCCL_SCALAR_OF_HOST)
        return comm_fail(NULL, NCCL_INVALID_ARGUMENT, "too many operators, or a factor of a device");
    comm->operator_used[i] = true;
    comm->operators[i] =
        (struct reduction){.base = NCCL_SUM, .scales = true, .factor = scalar_of(factor, (int)type)};
    *op = (ncclRedOp_t)(NCCL_AVERAGE + 1 + i);
    return NCCL_OK;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    ENTER_NCCL(ncclRedOpDestroy);
    int i = (int)op - NCCL_AVERAGE - 1;
    if (!comm || i < 0 || i >= MOST_OPERATORS || !comm->operator_used[i])
        return comm_fail(NULL, NCCL_INVALID_ARGUMENT, "no such operator");
    comm->operator_used[i] = false;
    return NCCL_OK;
}

ncclResult_t ncclGetVersion(int *version)
{
    ENTER_NCCL(ncclGetVersion);
    *version = STANDIN_NCCL_VERSION;
    return NCCL_OK;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    nccl_enter(CALL_ncclGetErrorString);
    return (unsigned)result < sizeof texts / sizeof *texts ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    nccl_enter(CALL_ncclGetLastError);
    return comm && atomic_load(&comm->error) ? comm->text : last_error;
}
