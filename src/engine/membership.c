/* membership.c - process sets are added and removed by requests of the world, so that all ranks see them come
 * and go in one order; those that their members open come and go without it. Connecting the members of a new
 * set blocks; the calling thread does it, while the driver goes on. */
#include "engine/comm.h"

#include "base/clock.h"
#include "base/status.h"
#include "engine/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- under the progress lock --------------------------------------------------------------------------- */

struct comm *membership_find(const struct hvd_context *context, int id)
{
    return id ? mesh_find(context->world->mesh, (unsigned)id) : context->world;
}

/* The handle of a removal ends once its communicator has closed. */
static void remove_set(struct hvd_context *context, struct hvd_handle *handle)
{
    /* Where a broadcast has its root a removal has the id of the set. */
    int id = handle->request.root;
    sets_remove(&context->sets, id);
    /* The thread that added the set may have handed its communicator over just now. */
    membership_adopt(context);
    struct comm *comm = membership_find(context, id);
    if (comm) {
        comm->remover = handle;
        comm_leave(comm);
    } else {
        handle_finish(handle, &(hvd_status){.code = HVD_OK});
    }
}

void membership_decided(struct hvd_context *context, struct hvd_handle *handle)
{
    if (handle->request.operation == HVD_REMOVE_PROCESS_SET) {
        remove_set(context, handle);
        return;
    }
    handle->value = ++context->last_set;
    handle_finish(handle, &(hvd_status){.code = HVD_OK});
}

void membership_adopt(struct hvd_context *context)
{
    struct comm *comm = atomic_exchange(&context->added, NULL);
    while (comm) {
        struct comm *next = comm->next;
        hvd_status fault;
        comm->next = context->world->next;
        comm->next_running = context->world->next_running;
        context->world->next = context->world->next_running = comm;
        if (mesh_attach(comm->mesh, &fault))
            progress_fault(context, &fault);
        /* Too late for the leave_all of a shutdown. */
        if (context->leave_said || context->world->health)
            comm_leave(comm);
        comm = next;
    }
}

static void unlist(struct hvd_context *context, const struct comm *comm)
{
    struct comm **place = &context->world->next;
    while (*place != comm)
        place = &(*place)->next;
    *place = comm->next;
    for (place = &context->shrinking; *place && *place != comm;)
        place = &(*place)->next_shrinking;
    if (*place)
        *place = comm->next_shrinking;
}

void membership_reap(struct hvd_context *context)
{
    struct comm **place = &context->world->next_running;
    while (*place) {
        struct comm *comm = *place;
        /* Closed, but SHUTDOWN_ACK may still wait on an edge to a child. */
        if (comm->remover && comm->closed && comm_is_flushed(comm)) {
            *place = comm->next_running;
            unlist(context, comm);
            handle_finish(comm->remover, &(hvd_status){.code = HVD_OK});
            comm_close(comm);
        } else {
            place = &comm->next_running;
        }
    }
}

void membership_close(struct hvd_context *context)
{
    struct comm *world = context->world;
    while (world && world->next) {
        struct comm *comm = world->next;
        world->next = comm->next;
        comm_close(comm);
    }
    comm_close(world); /* last: its mesh is the hub of the others */
    context->world = NULL;
}

/* ---- what the caller does -------------------------------------------------------------------------- */

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

/* Returns early when the context's interrupt is set; then the operation goes on without its caller. */
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

/* All ranks learn whether all members could connect: the lowest rank that could not, or HVD_OK. */
static hvd_code agree_on_success(struct hvd_context *context, int id, const hvd_status *own,
                                 hvd_status *status)
{
    char name[64];
    int32_t *failed = malloc(sizeof *failed);
    if (!failed)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for process set %d", id);
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
    hvd_code code = submit(context, &request, &handle, status);
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

static void hand_over(struct hvd_context *context, struct comm *comm)
{
    comm->next = atomic_load(&context->added);
    while (!atomic_compare_exchange_weak(&context->added, &comm->next, comm))
        ;
    drive_notify(context);
}

/* Connects this rank, if it is a member, and puts the set into the table. */
static hvd_code open_set(struct hvd_context *context, int id, const int *ranks, int count, struct comm **comm,
                         hvd_status *status)
{
    hvd_code code = HVD_OK;
    if (ranks_find(ranks, count, context->placement.rank) >= 0)
        code = comm_open(context, id, ranks, count, clock_after(context->settings.start_timeout_seconds),
                         &context->interrupt, comm, status);
    if (!code)
        code = sets_add(&context->sets, id, ranks, count, context->placement.rank, status);
    return code ? code : status_ok(status); /* attempts that were repeated may have left their fault */
}

/* Puts the communicator to work, or undoes open_set. */
static void settle(struct hvd_context *context, int id, struct comm *comm, hvd_code code)
{
    if (code) {
        sets_remove(&context->sets, id);
        comm_close(comm);
    } else if (comm) {
        hand_over(context, comm);
    }
}

static hvd_code connect_set(struct hvd_context *context, int id, const int *ranks, int count,
                            hvd_status *status)
{
    struct comm *comm = NULL;
    hvd_status own;
    /* In the table before the ranks agree, so that lack of memory here fails the set on all of them. */
    open_set(context, id, ranks, count, &comm, &own);
    hvd_code code = agree_on_success(context, id, &own, status);
    settle(context, id, comm, code);
    return code;
}

/* Runs the request that all ranks of the job have to make, and gives its value. */
static hvd_code run_decision(struct hvd_context *context, hvd_request *request, int *value,
                             hvd_status *status)
{
    hvd_handle *handle;
    request->struct_size = sizeof *request;
    request->waits = 1;
    hvd_code code = submit(context, request, &handle, status);
    if (code)
        return code;
    code = wait_or_give_up(handle, status);
    *value = code ? 0 : handle->value;
    hvd_release(handle);
    return code;
}

/* The ranks, checked and ascending; to be freed. */
static hvd_code sort_ranks(const struct hvd_context *context, const int32_t *ranks, int32_t count,
                           int **sorted, hvd_status *status)
{
    *sorted = NULL;
    hvd_code code = context_check_process(context, status);
    if (code)
        return code;
    if (count < 1 || !ranks)
        return status_set(status, HVD_INVALID_ARGUMENT, "a process set needs one rank at least");
    *sorted = malloc((size_t)count * sizeof **sorted);
    if (!*sorted)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for a process set of %d ranks", count);
    memcpy(*sorted, ranks, (size_t)count * sizeof **sorted);
    ranks_sort(*sorted, count);
    return check_ranks(context, *sorted, count, status);
}

hvd_code hvd_process_set_add(hvd_context *context, const int32_t *ranks, int32_t count, int32_t *id,
                             hvd_status *status)
{
    int *sorted, value = 0;
    hvd_code code = sort_ranks(context, ranks, count, &sorted, status);
    hvd_request request = {.operation = HVD_ADD_PROCESS_SET, .ranks = sorted, .rank_count = count};
    if (!code)
        code = run_decision(context, &request, &value, status);
    if (!code)
        code = connect_set(context, value, sorted, count, status);
    if (!code)
        *id = value;
    free(sorted);
    return code ? code : status_ok(status);
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
    if (!code)
        code = check_opening(context, id, sorted, count, status);
    if (!code) {
        code = open_set(context, id, sorted, count, &comm, status);
        settle(context, id, comm, code);
    }
    free(sorted);
    return code;
}

/* Nobody else takes part, so its name is its own: operations without one are counted on all ranks. */
static hvd_code close_opened(struct hvd_context *context, hvd_request *request, hvd_status *status)
{
    char name[64];
    snprintf(name, sizeof name, "process_set.%d.closed", (int)request->root);
    request->struct_size = sizeof *request;
    request->name = name;
    return submit(context, request, NULL, status);
}

hvd_code hvd_process_set_remove(hvd_context *context, int32_t id, hvd_status *status)
{
    hvd_code code = context_check_process(context, status);
    if (!code && sets_ranks(&context->sets, id, NULL, 0) < 0)
        code = status_set(status, HVD_INVALID_ARGUMENT,
                          id ? "there is no process set %d: it was removed, or never added"
                             : "process set %d, all ranks of the job, can't be removed",
                          (int)id);
    hvd_request request = {.operation = HVD_REMOVE_PROCESS_SET, .root = id};
    int value;
    if (code)
        return code;
    return id < HVD_OPENED_SETS ? run_decision(context, &request, &value, status)
                                : close_opened(context, &request, status);
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
