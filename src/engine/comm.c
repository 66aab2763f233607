/* comm.c - one process set at work: its turn, and what starts, suspends and ends it. Under the progress lock.
 */
#include "engine/comm.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/types.h"
#include "coordinate/name.h"
#include "engine/context.h"
#include "engine/handle.h"
#include "engine/observe.h"
#include "engine/recorder.h"
#include "engine/sets.h"
#include "engine/tuning.h"

#include <assert.h>
#include <stdlib.h>

static int compare_peer(const void *rank, const void *edge)
{
    return *(const int *)rank - ((const struct edge *)edge)->peer;
}

struct edge *comm_edge(const struct comm *comm, int rank)
{
    return bsearch(&rank, comm->edges, (size_t)comm->edge_count, sizeof *comm->edges, compare_peer);
}

static void report_stalls(struct comm *comm)
{
    const struct settings *settings = &comm->context->settings;
    char text[STALL_TEXT];
    page_stalled(&comm->context->page,
                 context_now(comm->context) - (int64_t)(comm->stalls.longest * CLOCK_SECOND));
    stall_text(&comm->stalls, comm->id,
               &(struct stall_limits){settings->stall_warning_seconds, settings->stall_shutdown_seconds},
               text, sizeof text);
    log_warning(comm->context->placement.rank, "%s", text);
}

static void name_request(struct comm *comm, struct hvd_handle *handle)
{
    const hvd_request *request = &handle->request;
    handle->counters = &comm->counters->operations[request->operation];
    counter_add(&handle->counters->submitted, 1);
    handle->pending.unnamed = !request->name;
    /* handle_create has left room for a name. */
    if (handle->pending.unnamed)
        name_write_counted(request->operation, request->grouped,
                           coordinator_unnamed(comm->coordinator, request->operation) +
                               comm->held_unnamed[unnamed_kind(request->operation)],
                           handle->name);
}

void comm_hold(struct comm *comm, struct hvd_handle *handle)
{
    assert(context_is_held(comm->context));
    if (handle->footprint.held)
        return;
    name_request(comm, handle);
    handle->footprint.held = true;
    recorder_submitted(comm, handle);
    comm->held++;
    comm->held_unnamed[unnamed_kind(handle->request.operation)] += handle->pending.unnamed;
}

void comm_submit(struct comm *comm, struct hvd_handle *handle)
{
    assert(context_is_held(comm->context));
    comm_resume(comm);
    comm->active = true;
    if (handle->footprint.held) {
        handle->footprint.held = false;
        comm->held--;
        comm->held_unnamed[unnamed_kind(handle->request.operation)] -= handle->pending.unnamed;
    } else {
        name_request(comm, handle);
    }
    /* Marking the later one of two suffices: it is alone in its batch. */
    handle->pending.apart = handle->parts.of || overlaps_any(&comm->context->overlaps, &handle->footprint);
    hvd_status refusal;
    if (coordinator_submit(comm->coordinator, &handle->pending, context_now(comm->context), &refusal)) {
        handle_finish(handle, &refusal);
        return;
    }
    recorder_submitted(comm, handle);
    observe_submitted(handle);
}

bool comm_suspend(struct comm *comm)
{
    assert(context_is_held(comm->context));
    comm->suspended = comm->id && !comm->remover && comm->next_flush == CLOCK_NEVER && comm_is_quiet(comm) &&
                      !comm_is_ready(comm) && mesh_suspend(comm->mesh);
    return comm->suspended;
}

void comm_resume(struct comm *comm)
{
    assert(context_is_held(comm->context));
    struct comm *world = comm->context->world;
    if (!comm->suspended)
        return;
    comm->suspended = false;
    comm->idle_turns = 0;
    comm->next_running = world->next_running;
    world->next_running = comm;
    mesh_resume(comm->mesh);
    for (int i = 0; i < comm->edge_count; i++)
        comm->edges[i].alive = true; /* earlier silence does not count */
}

void comm_leave(struct comm *comm)
{
    assert(context_is_held(comm->context));
    comm_resume(comm);
    coordinator_leave(comm->coordinator);
    comm->active = true;
}

void comm_abort(struct comm *comm, int lost_rank, const hvd_status *cause)
{
    assert(context_is_held(comm->context));
    comm_resume(comm);
    coordinator_abort(comm->coordinator, lost_rank < 0 ? -1 : ranks_find(comm->ranks, comm->size, lost_rank),
                      cause, context_now(comm->context));
    comm->active = true;
}

void comm_end(struct comm *comm, const hvd_status *cause)
{
    assert(context_is_held(comm->context));
    comm_abort(comm, -1, cause);
    /* This health has been acted on: check_health must not do so again. */
    comm->health = coordinator_health(comm->coordinator, NULL);
    comm_flush(comm); /* peers receive the cause before they miss the data */
    backends_abort(&comm->backends, cause);
    if (comm->remover)
        handle_finish(comm->remover, cause);
    comm->remover = NULL;
}

bool comm_flush(struct comm *comm)
{
    assert(context_is_held(comm->context));
    return edges_flush(&comm->unsent);
}

bool comm_is_flushed(const struct comm *comm)
{
    assert(context_is_held(comm->context));
    return !comm->unsent;
}

bool comm_is_quiet(const struct comm *comm)
{
    assert(context_is_held(comm->context));
    return !coordinator_pending_count(comm->coordinator) && backends_idle(&comm->backends) &&
           comm_is_flushed(comm);
}

bool comm_is_ready(const struct comm *comm)
{
    assert(context_is_held(comm->context));
    /* While the set is open and this rank has no requests, it has nothing to report or decide. */
    bool open = coordinator_health(comm->coordinator, NULL) == HVD_OK;
    return (comm->active && (comm->asks || !(open && comm_is_quiet(comm)))) ||
           backends_are_ready(&comm->backends);
}

int64_t comm_deadline(const struct comm *comm)
{
    assert(context_is_held(comm->context));
    if (!backends_poll(&comm->backends))
        return comm->next_flush;
    return clock_earlier(comm->next_flush, clock_now() + BACKEND_POLL_PERIOD);
}

/* A message that is lost, or never received, would leave other ranks waiting forever. */
static bool check_memory(struct comm *comm, struct edge *edge)
{
    hvd_status cause;
    if (!edge_starved(edge))
        return true;
    context_no_memory(comm->context, &cause);
    comm_abort(comm, -1, &cause);
    return false;
}

static bool receive_messages(struct comm *comm, struct edge *edge)
{
    const uint8_t *bytes;
    size_t length;
    bool any = false;
    for (;;) {
        enum edge_event event = edge_next(edge, &bytes, &length);
        if (event == EDGE_NOTHING) {
            if (!check_memory(comm, edge))
                mesh_report(comm->mesh, edge->peer); /* the message is still unread */
            return any;
        }
        any = true;
        if (event == EDGE_MESSAGE) {
            coordinator_receive(comm->coordinator, edge->peer, bytes, length, context_now(comm->context));
            continue;
        }
        hvd_status cause;
        status_set(&cause, HVD_REFUSED,
                   "rank %d sent rank %d bytes that are no message; is it another program or version?",
                   comm->ranks[edge->peer], comm->context->placement.rank);
        comm_abort(comm, comm->ranks[edge->peer], &cause);
        return true;
    }
}

static bool receive_all(struct comm *comm)
{
    bool any = false;
    if (!mesh_reports(comm->mesh)) {
        for (int i = 0; i < comm->edge_count; i++)
            any |= receive_messages(comm, &comm->edges[i]);
        return any;
    }
    uint64_t news[MESH_NEWS_BITS / 64];
    mesh_collect_news(comm->mesh, news);
    for (int word = 0; word < MESH_NEWS_BITS / 64; word++) {
        for (uint64_t bits = news[word]; bits; bits &= bits - 1) {
            for (int peer = word * 64 + __builtin_ctzll(bits); peer < comm->size; peer += MESH_NEWS_BITS) {
                struct edge *edge = comm_edge(comm, peer);
                any |= edge && receive_messages(comm, edge);
            }
        }
    }
    return any;
}

bool comm_progress(struct comm *comm, int64_t now)
{
    assert(context_is_held(comm->context));
    bool moved = receive_all(comm);
    /* Most turns have no flush to wait for, so they do not read the clock. */
    if (moved || comm->active ||
        (comm->next_flush != CLOCK_NEVER && (now ? now : clock_now()) >= comm->next_flush)) {
        comm->active = comm->decides = comm->asks = false;
        if (comm->tuning)
            tuning_apply(comm);
        coordinator_flush(comm->coordinator, context_now(comm->context));
        comm->next_flush = coordinator_next_flush(comm->coordinator);
        if (comm->stalls.count)
            report_stalls(comm);
    }
    for (struct edge *edge = comm->unsent; edge; edge = edge->next_unsent)
        check_memory(comm, edge);
    moved |= comm_flush(comm);
    /* After the flush, so that a batch decided in this turn starts in this turn. */
    moved |= backends_progress(&comm->backends);
    nonfinite_search_ahead(comm);
    return moved;
}
