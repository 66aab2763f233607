/* process_sets.c - the public functions of process sets. They are added and removed by requests of all ranks,
 * so all ranks see the changes in one order; sets that only their members open are outside this order.
 * Connecting the members of a new set blocks: the calling thread does it, while the progress thread
 * continues. Any thread. */
#include "base/clock.h"
#include "base/status.h"
#include "engine/api.h"
#include "engine/comm_open.h"
#include "engine/context.h"
#include "engine/drive.h"
#include "engine/handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static hvd_code check_ranks(const struct hvd_context *context, const int *ranks, int count,
                            hvd_status *status)
{
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= context->placement.size)
            return status_set(status, HVD_INVALID_ARGUMENT,
                              "process set: there is no rank %d in a job of size %d", ranks[i],
                              (int)context->placement.size);
        if (i && ranks[i] == ranks[i - 1])
            return status_set(status, HVD_INVALID_ARGUMENT, "process set: rank %d is given twice", ranks[i]);
    }
    return HVD_OK;
}

/* Returns early when the context's interrupt is set; the operation then continues without its caller. */
static hvd_code wait_or_give_up(struct hvd_handle *handle, hvd_status *status)
{
    struct hvd_context *context = handle->context;
    while (!drive_until(context, &handle->state, HANDLE_DONE,
                        interrupt_slice(&context->interrupt, CLOCK_NEVER), NULL)) {
        if (interrupt_is_set(&context->interrupt))
            return status_set(status, HVD_INTERRUPTED,
                              "interrupted while waiting for the other ranks to add or remove a process set");
    }
    return hvd_test(handle, status);
}

/* Returns HVD_OK on all ranks if all members could connect; otherwise the error names the lowest rank that
 * could not. */
static hvd_code agree_on_success(struct hvd_context *context, int id, const hvd_status *own,
                                 hvd_status *status)
{
    char name[64];
    int32_t *failed = malloc(sizeof *failed);
    if (!failed)
        return status_no_memory(status);
    *failed = own->code ? context->placement.rank : INT32_MAX;
    hvd_handle *handle;
    hvd_tensor tensor = {.data = failed, .dtype = HVD_INT32, .device_type = HVD_CPU};
    hvd_request request = {.struct_size = sizeof request,
                           .operation = HVD_ALLREDUCE,
                           .name = name,
                           .count = 1,
                           .inputs = &tensor,
                           .reduction = HVD_MIN};
    snprintf(name, sizeof name, "process_set.%d.connected", id);
    hvd_code code = api_submit(context, &request, &handle, status);
    if (code) {
        free(failed);
        return code;
    }
    handle->own_data = failed; /* it may outlive this call */
    /* The submission announces an interrupted call to the others; it does not wait for their part. */
    code = own->code == HVD_INTERRUPTED ? status_copy(status, own) : wait_or_give_up(handle, status);
    int32_t lowest = code ? INT32_MAX : *failed;
    hvd_release(handle);
    if (code || lowest == INT32_MAX)
        return code;
    if (own->code)
        return status_copy(status, own);
    return status_set(status, HVD_SYSTEM,
                      "process set %d can't be used: rank %d could not connect to the other members; its own "
                      "error says why",
                      id, (int)lowest);
}

/* Connects this rank, if it is a member, and puts the set into the table. */
static hvd_code open_set(struct hvd_context *context, int id, const int *ranks, int count, struct comm **comm,
                         hvd_status *status)
{
    if (ranks_find(ranks, count, context->placement.rank) >= 0)
        TRY(comm_open(context, id, ranks, count, clock_after(context->settings.start_timeout_seconds),
                      &context->interrupt, comm, status));
    TRY(sets_add(&context->sets, id, ranks, count, context->placement.rank, status));
    return status_ok(status); /* attempts that were repeated may have left their fault */
}

/* Hands the communicator to the thread that makes progress, or undoes open_set if that or a later step
 * failed. */
static void finish_opening(struct hvd_context *context, int id, struct comm *comm, hvd_code code)
{
    if (code) {
        sets_remove(&context->sets, id);
        comm_close(comm);
    } else if (comm) {
        comm->next = atomic_load(&context->added);
        while (!atomic_compare_exchange_weak(&context->added, &comm->next, comm))
            ;
        drive_notify(context);
    }
}

static hvd_code connect_set(struct hvd_context *context, int id, const int *ranks, int count,
                            hvd_status *status)
{
    struct comm *comm = NULL;
    hvd_status own;
    /* The set is in the table before the ranks agree, so lack of memory here fails it on all of them. */
    open_set(context, id, ranks, count, &comm, &own);
    hvd_code code = agree_on_success(context, id, &own, status);
    finish_opening(context, id, comm, code);
    return code;
}

/* Runs a request that all ranks of the job must make, and returns its value. */
static hvd_code run_decision(struct hvd_context *context, hvd_request *request, int *value,
                             hvd_status *status)
{
    hvd_handle *handle;
    request->struct_size = sizeof *request;
    request->waits = 1;
    TRY(api_submit(context, request, &handle, status));
    hvd_code code = wait_or_give_up(handle, status);
    *value = code ? 0 : handle->value;
    hvd_release(handle);
    return code;
}

/* Returns a copy of the ranks, checked and ascending, which the caller frees. */
static hvd_code sort_ranks(const struct hvd_context *context, const int32_t *ranks, int32_t count,
                           int **sorted, hvd_status *status)
{
    *sorted = NULL;
    TRY(context_check_process(context, status));
    if (count < 1 || !ranks)
        return status_set(status, HVD_INVALID_ARGUMENT, "a process set needs one rank at least");
    *sorted = malloc((size_t)count * sizeof **sorted);
    if (!*sorted)
        return status_no_memory(status);
    memcpy(*sorted, ranks, (size_t)count * sizeof **sorted);
    ranks_sort(*sorted, count);
    return check_ranks(context, *sorted, count, status);
}

hvd_code hvd_process_set_add(hvd_context *context, const int32_t *ranks, int32_t count, int32_t *id,
                             hvd_status *status)
{
    return hvd_process_set_add_from(context, 1, ranks, count, id, status);
}

hvd_code hvd_process_set_add_from(hvd_context *context, int32_t least, const int32_t *ranks, int32_t count,
                                  int32_t *id, hvd_status *status)
{
    int *sorted, value = 0;
    hvd_code code = sort_ranks(context, ranks, count, &sorted, status);
    if (code)
        goto free_ranks;
    hvd_request request = {
        .operation = HVD_ADD_PROCESS_SET, .root = least, .ranks = sorted, .rank_count = count};
    code = run_decision(context, &request, &value, status);
    if (code)
        goto free_ranks;
    code = connect_set(context, value, sorted, count, status);
    if (code)
        goto free_ranks;
    *id = value;
    status_ok(status);
free_ranks:
    free(sorted);
    return code;
}

static hvd_code check_opening(struct hvd_context *context, int id, const int *ranks, int count,
                              hvd_status *status)
{
    int own = context->placement.rank;
    if (ranks_find(ranks, count, own) < 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "rank %d can't open process set %d, of which it is not a member", own, id);
    if (id < HVD_OPENED_SETS || sets_ranks(&context->sets, id, NULL, 0) >= 0)
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "process set %d can't be opened: ids of such sets begin at %d, and each is used once", id,
            HVD_OPENED_SETS);
    return hvd_health(context, status);
}

hvd_code hvd_process_set_open(hvd_context *context, int32_t id, const int32_t *ranks, int32_t count,
                              hvd_status *status)
{
    int *sorted;
    struct comm *comm = NULL;
    hvd_code code = sort_ranks(context, ranks, count, &sorted, status);
    if (code)
        goto free_ranks;
    code = check_opening(context, id, sorted, count, status);
    if (code)
        goto free_ranks;
    code = open_set(context, id, sorted, count, &comm, status);
    finish_opening(context, id, comm, code);
free_ranks:
    free(sorted);
    return code;
}

hvd_code hvd_process_set_remove(hvd_context *context, int32_t id, hvd_status *status)
{
    TRY(context_check_process(context, status));
    if (sets_ranks(&context->sets, id, NULL, 0) < 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          id ? "there is no process set %d: it was removed, or never added"
                             : "process set %d, all ranks of the job, can't be removed",
                          (int)id);
    char name[64];
    int value;
    hvd_request request = {.struct_size = sizeof request, .operation = HVD_REMOVE_PROCESS_SET, .root = id};
    if (id >= HVD_OPENED_SETS) {
        /* No other rank takes part, so it needs a name of its own: unnamed requests are counted on all ranks.
         */
        snprintf(name, sizeof name, "process_set.%d.closed", (int)id);
        request.name = name;
        return api_submit(context, &request, NULL, status);
    }
    return run_decision(context, &request, &value, status);
}

int32_t hvd_process_set_ids(hvd_context *context, int32_t *ids, int32_t capacity)
{
    if (capacity > 0)
        ids[0] = 0;
    return 1 + sets_ids(&context->sets, ids ? ids + 1 : NULL, capacity - 1);
}

int32_t hvd_process_set_ranks(hvd_context *context, int32_t id, int32_t *ranks, int32_t capacity)
{
    if (id)
        return sets_ranks(&context->sets, id, ranks, capacity);
    for (int rank = 0; rank < context->placement.size && rank < capacity; rank++)
        ranks[rank] = rank;
    return context->placement.size;
}
