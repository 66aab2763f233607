/* nccl_meet.c - see nccl_meet.h. The key nccl.<rank> has the UUID of a member's GPU and the reason why it
 * can't use NCCL, if there is one; nccl.verdict has the unique id and the verdict of rank 0. */
#include "backend/nccl_meet.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"
#include "base/wire.h"
#include "rendezvous/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define VERDICT_KEY "nccl.verdict"

/* What a member publishes. */
struct place {
    char gpu[16];  /* UUID */
    char host[64]; /* NCCL_HOSTID; "": not set */
    char reason[400];
};

struct verdict {
    ncclUniqueId id;
    char reason[500]; /* "": all use NCCL */
};

hvd_code nccl_failed(const struct nccl_library *library, ncclComm_t comm, ncclResult_t result, int rank,
                     const char *what, hvd_status *status)
{
    return status_set(status, HVD_SYSTEM,
                      "rank %d: %s failed: %s: %.500s; NCCL_DEBUG=INFO shows more, and "
                      "HOROVOD_GPU_OPERATIONS=host does without NCCL",
                      rank, what, library->error_string(result), library->last_error(comm));
}

/* ---- agreement ---------------------------------------------------------------------------------------- */

static void describe_self(struct nccl_meeting *meeting, struct place *own)
{
    hvd_status reason = {.code = HVD_OK};
    struct cuda_use use;
    CUdevice device;
    const char *host = getenv("NCCL_HOSTID"), *blocking = getenv("NCCL_COMM_BLOCKING");
    snprintf(own->host, sizeof own->host, "%s", host ? host : "");
    if (blocking && strcmp(blocking, "1") == 0)
        status_set(&reason, HVD_UNSUPPORTED, "NCCL_COMM_BLOCKING=1 lets its NCCL block the engine");
    else if (strcasecmp(meeting->settings->gpu_operations, "host") == 0)
        status_set(&reason, HVD_UNSUPPORTED, "its HOROVOD_GPU_OPERATIONS is host");
    else
        meeting->library = nccl_open_library(meeting->settings->nccl_library, &reason);
    if (!reason.code && !cuda_enter(&use, meeting->device_id, &reason)) {
        CUresult result = use.cuda->device_get(&device, meeting->device_id);
        if (!result)
            result = use.cuda->device_uuid((CUuuid *)own->gpu, device);
        cuda_check(use.cuda, result, "asking for the UUID of the GPU", &reason);
        cuda_leave(&use);
    }
    if (reason.code)
        snprintf(own->reason, sizeof own->reason, "%.*s", (int)sizeof own->reason - 1, reason.text);
}

static bool is_same_gpu(const struct place *a, const struct place *b)
{
    return memcmp(a->gpu, b->gpu, sizeof a->gpu) == 0 && strncmp(a->host, b->host, sizeof a->host) == 0;
}

/* Returns the rank before `rank` that has the same GPU, as NCCL sees it; -1: none. */
static int find_same(const struct place *places, int rank)
{
    int other = rank - 1;
    while (other >= 0 && !is_same_gpu(&places[other], &places[rank]))
        other--;
    return other;
}

static void judge(const struct nccl_meeting *meeting, const struct place *places, struct verdict *verdict)
{
    for (int rank = 0; rank < meeting->size && !*verdict->reason; rank++) {
        int other = find_same(places, rank);
        if (*places[rank].reason)
            snprintf(verdict->reason, sizeof verdict->reason, "rank %d can't use it: %s",
                     meeting->ranks[rank], places[rank].reason);
        else if (other >= 0)
            snprintf(
                verdict->reason, sizeof verdict->reason,
                "ranks %d and %d use the same GPU, which NCCL does not support; give each rank one of its "
                "own, e.g. by torch.cuda.set_device(hvd.local_rank())",
                meeting->ranks[other], meeting->ranks[rank]);
    }
    if (!*verdict->reason && meeting->library->unique_id(&verdict->id))
        snprintf(verdict->reason, sizeof verdict->reason, "rank %d gets no unique id: %.300s",
                 meeting->ranks[0], meeting->library->last_error(NULL));
}

/* Gets a value of that many bytes, which the member `from` has put. */
static hvd_code get(const struct nccl_meeting *meeting, struct rendezvous_client *client, const char *key,
                    int from, void *value, size_t bytes, hvd_status *status)
{
    struct wire_writer got = {0};
    hvd_code code = rendezvous_get(client, key, meeting->deadline, &got, status);
    if (code == HVD_TIMED_OUT)
        status_set(status, code,
                   "rank %d has got no answer from rank %d in %g seconds on whether it can use NCCL; "
                   "HOROVOD_START_TIMEOUT is the limit",
                   meeting->ranks[meeting->rank], meeting->ranks[from],
                   meeting->settings->start_timeout_seconds);
    if (!code && got.length == bytes)
        memcpy(value, got.bytes, bytes);
    else if (!code)
        code = status_set(status, HVD_REFUSED, "%s has another length; do the ranks run different versions?",
                          key);
    wire_writer_free(&got);
    return code;
}

static hvd_code decide(const struct nccl_meeting *meeting, struct rendezvous_client *client,
                       struct verdict *verdict, hvd_status *status)
{
    char key[32];
    hvd_code code = HVD_OK;
    struct place *places = calloc((size_t)meeting->size, sizeof *places);
    if (!places)
        return status_no_memory(status);
    for (int rank = 0; rank < meeting->size && !code; rank++) {
        snprintf(key, sizeof key, "nccl.%d", rank);
        code = get(meeting, client, key, rank, &places[rank], sizeof *places, status);
        places[rank].reason[sizeof places->reason - 1] = '\0';
    }
    if (!code) {
        judge(meeting, places, verdict);
        code = rendezvous_put(client, VERDICT_KEY, verdict, sizeof *verdict, status);
    }
    free(places);
    return code;
}

static hvd_code agree_by(struct nccl_meeting *meeting, struct rendezvous_client *client,
                         struct verdict *verdict, hvd_status *status)
{
    char key[32];
    struct place own = {0};
    const struct rendezvous_place place = {meeting->settings->job, (uint32_t)meeting->settings->epoch,
                                           meeting->ranks[meeting->rank], 0};
    describe_self(meeting, &own);
    TRY(rendezvous_enter(client, &place, NULL, status));
    rendezvous_scope(client, meeting->generation, meeting->set);
    snprintf(key, sizeof key, "nccl.%d", meeting->rank);
    TRY(rendezvous_put(client, key, &own, sizeof own, status));
    return meeting->rank == 0 ? decide(meeting, client, verdict, status)
                              : get(meeting, client, VERDICT_KEY, 0, verdict, sizeof *verdict, status);
}

static int is_stopped(void *argument)
{
    return atomic_load(&((struct nccl_meeting *)argument)->stops);
}

static hvd_code agree(struct nccl_meeting *meeting, struct verdict *verdict, hvd_status *status)
{
    const struct settings *settings = meeting->settings;
    const struct interrupt interrupt = {is_stopped, meeting};
    struct rendezvous_client *client = NULL;
    TRY(rendezvous_connect(settings->rendezvous, settings->secret, settings->encryption, meeting->deadline,
                           &interrupt, &client, status));
    hvd_code code = agree_by(meeting, client, verdict, status);
    rendezvous_close(client);
    return code;
}

/* ---- the communicator --------------------------------------------------------------------------------- */

/* Until the set-up is done. */
static hvd_code poll_comm(struct nccl_meeting *meeting, hvd_status *status)
{
    int rank = meeting->ranks[meeting->rank];
    for (;;) {
        ncclResult_t result, state = NCCL_IN_PROGRESS;
        result = meeting->library->async_error(meeting->comm, &state);
        if (result || (state && state != NCCL_IN_PROGRESS))
            return nccl_failed(meeting->library, meeting->comm, result ? result : state, rank,
                               "the set-up of NCCL", status);
        if (!state)
            return HVD_OK;
        if (atomic_load(&meeting->stops))
            return status_set(status, HVD_SHUT_DOWN, "the job has ended");
        if (clock_now() > meeting->deadline)
            return status_set(status, HVD_TIMED_OUT,
                              "rank %d: NCCL has not connected the %d ranks of process set %d in %g seconds; "
                              "NCCL_DEBUG=INFO shows what it tries, NCCL_SOCKET_IFNAME chooses its network, "
                              "HOROVOD_START_TIMEOUT is the limit, and HOROVOD_GPU_OPERATIONS=host does "
                              "without NCCL",
                              rank, meeting->size, meeting->set, meeting->settings->start_timeout_seconds);
        nanosleep(&(struct timespec){0, 200000}, NULL);
    }
}

/* The context of the GPU is current. */
static hvd_code open_comm(struct nccl_meeting *meeting, const ncclUniqueId *id, hvd_status *status)
{
    ncclConfig_t config = {.size = sizeof(struct nccl_config),
                           .magic = NCCL_CONFIG_MAGIC,
                           .version = NCCL_CONFIG_VERSION,
                           .blocking = 0,
                           .cga_cluster_size = NCCL_UNDEFINED,
                           .least_blocks = NCCL_UNDEFINED,
                           .most_blocks = NCCL_UNDEFINED,
                           .shares_resources = NCCL_UNDEFINED};
    ncclResult_t result = meeting->library->init(&meeting->comm, meeting->size, *id, meeting->rank, &config);
    if (result && result != NCCL_IN_PROGRESS) {
        meeting->comm = NULL;
        return nccl_failed(meeting->library, NULL, result, meeting->ranks[meeting->rank],
                           "ncclCommInitRankConfig", status);
    }
    hvd_code code = poll_comm(meeting, status);
    if (code) {
        meeting->library->abort(meeting->comm);
        meeting->comm = NULL;
    }
    return code;
}

/* HVD_UNSUPPORTED: so it was agreed. */
static hvd_code meet(struct nccl_meeting *meeting, hvd_status *status)
{
    struct cuda_use use;
    struct verdict verdict = {.reason = ""};
    hvd_code code = agree(meeting, &verdict, status);
    if (!code && *verdict.reason)
        return status_set(status, HVD_UNSUPPORTED, "%.*s", (int)sizeof verdict.reason - 1, verdict.reason);
    if (!code)
        code = cuda_enter(&use, meeting->device_id, status);
    if (!code) {
        code = open_comm(meeting, &verdict.id, status);
        cuda_leave(&use);
    }
    return code == HVD_UNSUPPORTED ? HVD_SYSTEM : code;
}

static void *run(void *argument)
{
    struct nccl_meeting *meeting = argument;
    hvd_status status = {.code = HVD_OK};
    status.code = meet(meeting, &status);
    meeting->status = status;
    atomic_store(&meeting->done, true);
    return NULL;
}

hvd_code nccl_meet_start(struct nccl_meeting *meeting, hvd_status *status)
{
    meeting->deadline = clock_now() + (int64_t)(meeting->settings->start_timeout_seconds * CLOCK_SECOND);
    int error = thread_start(&meeting->thread, run, meeting);
    return error ? status_set_errno(status, error, "rank %d can't start a thread for NCCL",
                                    meeting->ranks[meeting->rank])
                 : HVD_OK;
}

void nccl_meet_join(struct nccl_meeting *meeting)
{
    pthread_join(meeting->thread, NULL);
}
