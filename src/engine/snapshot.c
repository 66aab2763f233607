/* snapshot.c - a snapshot: which ranks share the memory of this host (hvd_snapshot_join), which buffer is
 * written next, and when a version is whole. One thread at a time; the copier has a thread of its own. */
#include "engine/snapshot.h"

#include "base/futex.h"
#include "base/status.h"
#include "engine/comm.h"
#include "engine/context.h"
#include "engine/handle.h"

#include <stdlib.h>
#include <string.h>

#define WAIT_SLICE   (CLOCK_SECOND / 100) /* between two checks whether the job has failed */
#define JOIN_SECONDS 0.1                  /* between two checks for an interrupt */

/* ---- life --------------------------------------------------------------------------------------------- */

static void mark_in_child(void *owner)
{
    struct hvd_snapshot *snapshot = owner;
    snapshot->forked = true;
}

/* From now on this rank writes a share of the memory, which replaces what it had before. */
static void use(struct hvd_snapshot *snapshot, struct host_copy *copy, int share, int shares)
{
    struct publication_state newest;
    if (snapshot->copy && snapshot->copy != copy)
        host_copy_close(snapshot->copy);
    snapshot->copy = copy;
    snapshot->share = share < PUBLICATION_SHARES ? share : -1;
    snapshot->shares = shares < PUBLICATION_SHARES ? shares : PUBLICATION_SHARES;
    if (snapshot->share >= 0)
        host_copy_enter(copy, share);
    snapshot->buffer = publication_newest(&copy->head->publication, &newest) == 0;
    snapshot->last.version = PUBLICATION_NONE;
}

/* Makes a snapshot of this memory, which it takes over also in case of an error. */
static hvd_code make_snapshot(struct host_copy *copy, int share, int shares, hvd_snapshot **snapshot,
                              hvd_status *status)
{
    struct hvd_snapshot *made = calloc(1, sizeof *made);
    if (!made) {
        host_copy_close(copy);
        return status_no_memory(status);
    }
    use(made, copy, share, shares);
    copier_init(&made->copier);
    made->watch = (struct atfork_handler){.in_child = mark_in_child, .owner = made};
    atfork_add(&made->watch);
    *snapshot = made;
    return status_ok(status);
}

hvd_code hvd_snapshot_create(hvd_snapshot **snapshot, hvd_status *status)
{
    struct host_copy *copy;
    TRY(host_copy_create(&copy, status));
    return make_snapshot(copy, 0, 1, snapshot, status);
}

hvd_code hvd_snapshot_open(int32_t descriptor, hvd_snapshot **snapshot, hvd_status *status)
{
    struct host_copy *copy;
    TRY(host_copy_adopt(descriptor, &copy, status));
    return make_snapshot(copy, -1, 0, snapshot, status);
}

int32_t hvd_snapshot_descriptor(const hvd_snapshot *snapshot)
{
    return snapshot->copy->fd;
}

void hvd_snapshot_free(hvd_snapshot *snapshot)
{
    if (!snapshot || snapshot->forked)
        return;
    atfork_remove(&snapshot->watch);
    copier_fini(&snapshot->copier);
    host_copy_close(snapshot->copy);
    free(snapshot->ranks);
    free(snapshot);
}

static hvd_code check_process(const struct hvd_snapshot *snapshot, hvd_status *status)
{
    return snapshot->forked ? status_set(status, HVD_FORKED, "the snapshot belongs to the parent process")
                            : HVD_OK;
}

/* ---- join --------------------------------------------------------------------------------------------- */

/* What the ranks of a job exchange, three times: which processes they are; where the memory of each
 * host is, of which the lowest rank decides; and whether they could open it. */
struct local_rank {
    struct host_copy_place place;
    int usable;
};

/* Sends its own to all ranks, and receives those of this host, ascending. */
static hvd_code exchange(struct hvd_context *context, const struct local_rank *own,
                         struct local_rank *of_host, hvd_status *status)
{
    const struct topology *topology = &context->world->topology;
    struct local_rank *sent = malloc(sizeof *sent);
    if (!sent)
        return status_no_memory(status);
    *sent = *own;
    const int64_t shape[] = {1, sizeof *sent};
    hvd_tensor tensor = {.data = sent, .shape = shape, .ndim = 2, .dtype = HVD_UINT8, .device_type = HVD_CPU};
    hvd_request request = {.struct_size = sizeof request,
                           .operation = HVD_ALLGATHER,
                           .name = "snapshot.join",
                           .generated = 1,
                           .count = 1,
                           .inputs = &tensor,
                           .waits = 1};
    hvd_handle *handle;
    hvd_code code = hvd_submit(context, &request, &handle, status);
    if (code) {
        free(sent);
        return code;
    }
    handle->own_data = sent; /* it may outlive this call */
    while ((code = hvd_wait(handle, JOIN_SECONDS, status)) == HVD_IN_PROGRESS)
        if (interrupt_is_set(&context->interrupt)) {
            code = status_set(status, HVD_INTERRUPTED, "interrupted while joining a snapshot");
            break;
        }
    hvd_tensor all;
    if (!code)
        code = hvd_output(handle, 0, &all, status);
    int host = topology->host_of[context->placement.rank];
    for (int i = 0; !code && i < context->placement.local_size; i++)
        memcpy(&of_host[i],
               (const char *)all.data + (size_t)topology->rank_at[topology->first[host] + i] * sizeof *sent,
               sizeof *sent);
    hvd_release(handle);
    return code;
}

/* The lowest rank of a host says which memory is used: its own, with what is whole in it, unless a process
 * that is no longer in the job could still write there. NULL: there is none. */
static struct host_copy *offer_memory(const struct hvd_snapshot *snapshot, const struct local_rank *of_host,
                                      int count, hvd_status *status)
{
    struct host_copy *offered = snapshot->copy;
    struct host_copy_process *processes = malloc((size_t)count * sizeof *processes);
    for (int i = 0; processes && i < count; i++)
        processes[i] = of_host[i].place.process;
    if (!processes || host_copy_is_used(offered, processes, count))
        offered = host_copy_create(&offered, status) ? NULL : offered;
    else
        publication_clear(&offered->head->publication);
    free(processes);
    return offered;
}

/* Opens the memory at this place, which may be this rank's own. NULL: it can't. */
static struct host_copy *open_memory(const struct hvd_snapshot *snapshot, const struct host_copy_place *place,
                                     hvd_status *status)
{
    struct host_copy *opened;
    if (memcmp(snapshot->copy->head->id, place->id, sizeof place->id) == 0)
        return snapshot->copy;
    return host_copy_open(place, &opened, status) ? NULL : opened;
}

/* Returns the memory that all ranks of the host can open, or NULL if one of them can't. */
static hvd_code agree_on_memory(const struct hvd_snapshot *snapshot, struct hvd_context *context,
                                struct local_rank *of_host, struct host_copy **agreed, hvd_status *status)
{
    hvd_placement placement = context->placement;
    struct local_rank own = {.place = host_copy_place(snapshot->copy)};
    struct host_copy *copy = NULL;
    hvd_status fault = {.code = HVD_OK};
    TRY(exchange(context, &own, of_host, status));
    if (placement.local_rank == 0) {
        copy = offer_memory(snapshot, of_host, placement.local_size, &fault);
        own.place = copy ? host_copy_place(copy) : (struct host_copy_place){.fd = -1};
    }
    hvd_code code = exchange(context, &own, of_host, status);
    if (!code && placement.local_rank)
        copy = open_memory(snapshot, &of_host[0].place, &fault);
    own.usable = copy != NULL;
    if (!code)
        code = exchange(context, &own, of_host, status);
    bool usable = true;
    for (int i = 0; !code && i < placement.local_size; i++)
        usable &= of_host[i].usable;
    if (!code && fault.code)
        log_warning(placement.rank, "%s; each rank of this host keeps a copy of its own", fault.text);
    *agreed = !code && usable ? copy : NULL;
    if (copy != *agreed && copy != snapshot->copy)
        host_copy_close(copy);
    return code;
}

/* Keeps the copy in memory that is this process's alone. */
static hvd_code stay_alone(struct hvd_snapshot *snapshot, hvd_status *status)
{
    struct host_copy *alone;
    TRY(host_copy_create(&alone, status));
    free(snapshot->ranks);
    snapshot->ranks = NULL;
    use(snapshot, alone, 0, 1);
    return HVD_OK;
}

hvd_code hvd_snapshot_join(hvd_snapshot *snapshot, hvd_context *context, hvd_status *status)
{
    TRY(check_process(snapshot, status));
    TRY(context_check_process(context, status));
    hvd_placement placement = context->placement;
    const struct topology *topology = &context->world->topology;
    copier_abandon(&snapshot->copier);
    struct local_rank *of_host = calloc((size_t)placement.local_size, sizeof *of_host);
    int *ranks = calloc((size_t)placement.local_size, sizeof *ranks);
    struct host_copy *agreed = NULL;
    hvd_code code = of_host && ranks ? agree_on_memory(snapshot, context, of_host, &agreed, status)
                                     : status_no_memory(status);
    free(of_host);
    if (code || !agreed) {
        free(ranks);
        return code ? code : stay_alone(snapshot, status);
    }
    for (int i = 0; i < placement.local_size; i++)
        ranks[i] = topology->rank_at[topology->first[topology->host_of[placement.rank]] + i];
    free(snapshot->ranks);
    snapshot->ranks = ranks;
    use(snapshot, agreed, placement.local_rank, placement.local_size);
    return status_ok(status);
}

/* ---- save and wait ------------------------------------------------------------------------------------ */

/* Returns a share that is not there, or -1; HVD_MISMATCH in *status if it is of another state. */
static int find_missing(const struct hvd_snapshot *snapshot, hvd_status *status)
{
    bool differs = false;
    int share =
        publication_missing(&snapshot->copy->head->publication, !snapshot->buffer, &snapshot->last, &differs);
    status->code = HVD_OK;
    if (differs)
        status_set(status, HVD_MISMATCH,
                   "version %lld of the state has other parts on rank %d than on this one: all ranks must "
                   "save equal states",
                   (long long)snapshot->last.version, snapshot->ranks ? snapshot->ranks[share] : 0);
    return share;
}

/* Returns why the version that was saved last may never be whole. */
static hvd_code check_waiting(struct hvd_snapshot *snapshot, struct hvd_context *context, int64_t waited,
                              int missing, hvd_status *status)
{
    hvd_code own = copier_outcome(&snapshot->copier, status);
    if (own && own != HVD_IN_PROGRESS)
        return own;
    if (!snapshot->ranks) /* its own copier always ends */
        return HVD_OK;
    if (!context)
        return own ? HVD_OK : status_set(status, HVD_SHUT_DOWN, "this process has left the job");
    TRY(hvd_health(context, status));
    if (interrupt_is_set(&context->interrupt))
        return status_set(status, HVD_INTERRUPTED, "interrupted while the state is copied");
    double limit = context->settings.timeout_seconds;
    if (limit <= 0 || (double)waited / CLOCK_SECOND < limit)
        return HVD_OK;
    status_set(status, HVD_TIMED_OUT,
               "rank %d has not copied its share of version %lld of the state for %g s: its process may be "
               "stopped (HOROVOD_TIMEOUT_SECONDS)",
               snapshot->ranks[missing], (long long)snapshot->last.version, limit);
    status_blame(status, HVD_CAUSE_SILENCE, snapshot->ranks[missing], NULL);
    return HVD_TIMED_OUT;
}

hvd_code hvd_snapshot_wait(hvd_snapshot *snapshot, hvd_context *context, hvd_status *status)
{
    hvd_status fault;
    TRY(check_process(snapshot, status));
    if (snapshot->last.version == PUBLICATION_NONE)
        return status_ok(status);
    struct host_copy_head *head = snapshot->copy->head;
    /* Time in which this process does not run does not count. */
    for (int64_t waited = 0;; waited += WAIT_SLICE) {
        unsigned news = atomic_load(&head->news);
        int missing = find_missing(snapshot, &fault);
        if (missing < 0)
            return status_ok(status);
        hvd_code code = fault.code ? fault.code : check_waiting(snapshot, context, waited, missing, &fault);
        if (code) {
            copier_finish(&snapshot->copier); /* the others must see a share that differs */
            return status_copy(status, &fault);
        }
        futex_wait_shared(&head->news, news, clock_now() + WAIT_SLICE);
    }
}

/* FNV-1a of the lengths. */
static struct publication_state describe(const struct hvd_snapshot *snapshot, int64_t version,
                                         const hvd_memory *parts, int32_t count)
{
    struct publication_state state = {
        .version = version, .structure = UINT64_C(14695981039346656037), .shares = snapshot->shares};
    for (int32_t i = 0; i < count; i++) {
        state.structure = (state.structure ^ parts[i].bytes) * UINT64_C(1099511628211);
        state.bytes += parts[i].bytes;
    }
    return state;
}

/* Returns the parts, followed by those of this rank alone; NULL: there is no memory. */
static hvd_memory *join_parts(const hvd_memory *parts, int32_t count, const hvd_memory *own,
                              int32_t own_count)
{
    hvd_memory *all = malloc(((size_t)count + (size_t)own_count) * sizeof *all + 1);
    if (!all)
        return NULL;
    if (count)
        memcpy(all, parts, (size_t)count * sizeof *all);
    if (own_count)
        memcpy(all + count, own, (size_t)own_count * sizeof *all);
    return all;
}

static hvd_code check_saved(const struct hvd_snapshot *snapshot, int64_t version, int32_t count,
                            int32_t own_count, hvd_status *status)
{
    if (!snapshot->shares)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "a snapshot that was opened by its descriptor can only be read");
    if (version < 0 || count < 0 || own_count < 0 || version <= snapshot->last.version)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "a snapshot has version %lld: %lld is not a later one",
                          (long long)snapshot->last.version, (long long)version);
    return HVD_OK;
}

hvd_code hvd_snapshot_save(hvd_snapshot *snapshot, hvd_context *context, int64_t version,
                           const hvd_memory *parts, int32_t count, const hvd_memory *own, int32_t own_count,
                           hvd_status *status)
{
    TRY(hvd_snapshot_wait(snapshot, context, status));
    TRY(check_saved(snapshot, version, count, own_count, status));
    struct copier_task task = {.copy = snapshot->copy,
                               .buffer = snapshot->buffer,
                               .share = snapshot->share,
                               .state = describe(snapshot, version, parts, count),
                               .count = count};
    if (snapshot->share >= 0) {
        size_t bytes = task.state.bytes / (size_t)snapshot->shares;
        bool last = snapshot->share == snapshot->shares - 1;
        task.from = bytes * (size_t)snapshot->share;
        task.to = last ? task.state.bytes : task.from + bytes;
        task.parts = join_parts(parts, count, own, snapshot->share ? 0 : own_count);
        if (!task.parts)
            return status_no_memory(status);
        for (int32_t i = 0; !snapshot->share && i < own_count; i++) {
            task.state.own += own[i].bytes;
            task.count++;
        }
        hvd_code code = copier_start(&snapshot->copier, &task, status);
        if (code) {
            free(task.parts);
            return code;
        }
    }
    snapshot->last = task.state;
    snapshot->buffer = !snapshot->buffer;
    return status_ok(status);
}

int64_t hvd_snapshot_version(const hvd_snapshot *snapshot, size_t *bytes, size_t *own)
{
    struct publication_state newest = {.version = PUBLICATION_NONE};
    publication_newest(&snapshot->copy->head->publication, &newest);
    if (bytes)
        *bytes = newest.bytes;
    if (own)
        *own = newest.own;
    return newest.version;
}

hvd_code hvd_snapshot_read(hvd_snapshot *snapshot, int64_t version, size_t offset, void *memory, size_t bytes,
                           hvd_status *status)
{
    TRY(check_process(snapshot, status));
    TRY(host_copy_read(snapshot->copy, version, offset, memory, bytes, status));
    return status_ok(status);
}
