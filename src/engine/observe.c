/* observe.c - makes events of the timeline from handles and batches. Under the progress lock. */
#include "engine/observe.h"

#include "base/clock.h"
#include "base/status.h"
#include "engine/batch.h"
#include "engine/comm.h"
#include "engine/context.h"
#include "engine/handle.h"
#include "watch/timeline.h"

#include <assert.h>
#include <string.h>

hvd_code observe_open(struct hvd_context *context, hvd_status *status)
{
    const struct settings *settings = &context->settings;
    bool all = strcmp(settings->timeline_ranks, "all") == 0;
    if (!all && strcmp(settings->timeline_ranks, "0") != 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "HOROVOD_TIMELINE_RANKS=%s: it is '0' (rank 0 writes all that happens) or 'all' "
                          "(horovodrun writes what all ranks did last)",
                          settings->timeline_ranks);
    if (context->placement.rank != 0 || !*settings->timeline)
        return HVD_OK;
    TRY(timeline_create(context->placement.rank, &context->timeline, status));
    if (all && !*settings->page)
        log_warning(context->placement.rank,
                    "HOROVOD_TIMELINE_RANKS=all needs horovodrun, and room for its files "
                    "(`ulimit -n`): %s gets the timeline of rank 0 only",
                    settings->timeline);
    else if (all || strcmp(settings->timeline, "DYNAMIC") == 0)
        return HVD_OK; /* hvd_timeline_start starts it; the file of all ranks is horovodrun's */
    return timeline_start(context->timeline, settings->timeline, settings->timeline_mark_cycles,
                          (int)settings->epoch, status);
}

void observe_close(struct hvd_context *context)
{
    timeline_destroy(context->timeline);
    context->timeline = NULL;
}

static struct event event_of(enum event_kind kind, const struct hvd_handle *handle)
{
    return (struct event){.kind = kind,
                          .process_set = handle->request.process_set,
                          .name = handle->name,
                          .operation = handle->request.operation,
                          .reduction = handle->request.reduction,
                          .request = &handle->request,
                          .rank = handle->context->placement.rank};
}

static void emit(const struct hvd_context *context, struct event event)
{
    event.time = clock_now();
    timeline_notice(context->timeline, &event);
}

void observe_submitted(struct hvd_handle *handle)
{
    assert(context_is_held(handle->context));
    if (!observed(handle->context))
        return;
    struct event event = event_of(EVENT_SUBMITTED, handle);
    /* The time at which the user's thread submitted it, not that at which it left the queue. */
    event.time = handle->submitted;
    handle->observed = true;
    timeline_notice(handle->context->timeline, &event);
}

void observe_finished(const struct hvd_handle *handle, const hvd_status *status)
{
    assert(context_is_held(handle->context));
    if (!handle->observed)
        return;
    struct event event = event_of(EVENT_FINISHED, handle);
    event.status = status;
    emit(handle->context, event);
}

void observe_ready(const struct comm *comm, const char *name, const struct signature_summary *what, int rank)
{
    assert(context_is_held(comm->context));
    emit(comm->context, (struct event){.kind = EVENT_READY,
                                       .process_set = comm->id,
                                       .name = name,
                                       .operation = what->operation,
                                       .reduction = what->reduction,
                                       .rank = comm->ranks[rank]});
}

void observe_deciding(const struct comm *comm)
{
    assert(context_is_held(comm->context));
    emit(comm->context, (struct event){.kind = EVENT_DECIDING,
                                       .process_set = comm->id,
                                       .rank = comm->context->placement.rank});
}

/* Returns the transport of the connections to all other members. */
static const char *transport_of(const struct comm *comm)
{
    const char *name = "local";
    for (int peer = mesh_next_peer(comm->mesh, -1); peer >= 0; peer = mesh_next_peer(comm->mesh, peer)) {
        const char *other = mesh_transport_name(comm->mesh, peer);
        if (strcmp(name, "local") != 0 && strcmp(name, other) != 0)
            return "mixed";
        name = other;
    }
    return name;
}

static void emit_of_batch(const struct running_batch *running, enum event_kind kind, int phase)
{
    assert(context_is_held(running->comm->context));
    const struct hvd_context *context = running->comm->context;
    const struct event_batch batch = {
        .number = running->sequence,
        .requests = running->count,
        .bytes = running->collective.input.length,
        .algorithm = backends_algorithm_name(&running->comm->backends, running->collective.choice),
        .transport = transport_of(running->comm)};
    int64_t now = clock_now();
    for (int i = 0; i < running->count; i++) {
        struct event event = event_of(kind, running->handles[i]);
        event.time = now;
        event.batch = &batch;
        event.phase = phase;
        timeline_notice(context->timeline, &event);
    }
}

void observe_dispatched(const struct running_batch *running)
{
    assert(context_is_held(running->comm->context));
    if (observed(running->comm->context) && !running->follows)
        emit_of_batch(running, EVENT_DISPATCHED, 0);
}

void observe_eager(const struct comm *comm, const struct hvd_handle *handle, uint64_t sequence,
                   uint64_t bytes)
{
    assert(context_is_held(comm->context));
    if (!observed(comm->context))
        return;
    const struct event_batch batch = {.number = sequence,
                                      .requests = 1,
                                      .bytes = bytes,
                                      .algorithm = "eager",
                                      .transport = transport_of(comm)};
    for (enum event_kind kind = EVENT_DISPATCHED; kind <= EVENT_PHASE; kind++) {
        struct event event = event_of(kind, handle);
        event.batch = &batch;
        emit(comm->context, event);
    }
}

void observe_phase(const struct collective *collective, int phase)
{
    emit_of_batch(collective->owner, EVENT_PHASE, phase);
}
