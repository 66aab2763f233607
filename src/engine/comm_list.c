/* comm_list.c - the list of communicators: sets are added when they have connected and removed when they
 * have closed. Under the progress lock. */
#include "engine/comm_list.h"

#include "base/status.h"
#include "engine/comm.h"
#include "engine/comm_open.h"
#include "engine/context.h"
#include "engine/handle.h"

#include <assert.h>

struct comm *comm_list_find(const struct hvd_context *context, int id)
{
    assert(context_is_held(context));
    return id ? mesh_find(context->world->mesh, (unsigned)id) : context->world;
}

/* The handle of a removal ends once its communicator has closed. */
static void remove_set(struct hvd_context *context, struct hvd_handle *handle)
{
    /* The root of a removal is the id of the set. */
    int id = handle->request.root;
    sets_remove(&context->sets, id);
    /* The thread that added the set may have handed its communicator over just now. */
    comm_list_adopt(context);
    struct comm *comm = comm_list_find(context, id);
    if (comm) {
        comm->remover = handle;
        comm_leave(comm);
    } else {
        handle_finish(handle, &(hvd_status){.code = HVD_OK});
    }
}

void comm_list_decided(struct hvd_context *context, struct hvd_handle *handle)
{
    assert(context_is_held(context));
    if (handle->request.operation == HVD_REMOVE_PROCESS_SET) {
        remove_set(context, handle);
        return;
    }
    /* The root of an addition is the least id. */
    int least = handle->request.root;
    context->last_set = least > context->last_set ? least : context->last_set + 1;
    handle->value = context->last_set;
    handle_finish(handle, &(hvd_status){.code = HVD_OK});
}

void comm_list_adopt(struct hvd_context *context)
{
    assert(context_is_held(context));
    struct comm *comm = atomic_exchange(&context->added, NULL);
    while (comm) {
        struct comm *next = comm->next;
        hvd_status fault;
        comm->next = context->world->next;
        comm->next_running = context->world->next_running;
        context->world->next = context->world->next_running = comm;
        if (mesh_attach(comm->mesh, &fault))
            context_fault(context, &fault);
        /* The set missed the leave_all of a shutdown. */
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

void comm_list_reap(struct hvd_context *context)
{
    assert(context_is_held(context));
    struct comm **place = &context->world->next_running;
    while (*place) {
        struct comm *comm = *place;
        /* A closed set may have an unsent SHUTDOWN_ACK for a child. */
        if (comm->remover && comm->closed && comm_is_flushed(comm)) {
            *place = comm->next_running;
            unlist(context, comm);
            turns_drop(&context->order, comm->id);
            handle_finish(comm->remover, &(hvd_status){.code = HVD_OK});
            comm_close(comm);
        } else {
            place = &comm->next_running;
        }
    }
}

void comm_list_close(struct hvd_context *context)
{
    assert(context_is_held(context));
    struct comm *world = context->world;
    while (world && world->next) {
        struct comm *comm = world->next;
        world->next = comm->next;
        comm_close(comm);
    }
    comm_close(world); /* last: its mesh is the hub of the others */
    context->world = NULL;
}
