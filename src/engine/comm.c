/* comm.c - see comm.h. */
#include "engine/comm.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/types.h"
#include "engine/batch.h"
#include "engine/context.h"
#include "engine/handle.h"
#include "engine/progress.h"
#include "engine/sets.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* How long a failing rank waits until the peers' hosts have the cause. */
#define DELIVERY_TIME (CLOCK_SECOND / 10)

/* ---- the coordinator's output ----------------------------------------------------------------- */

static int compare_peer(const void *rank, const void *edge)
{
    return *(const int *)rank - ((const struct edge *)edge)->peer;
}

/* NULL: no neighbour in the tree or in a ring. */
static struct edge *find_edge(const struct comm *comm, int rank)
{
    return bsearch(&rank, comm->edges, (size_t)comm->edge_count, sizeof *comm->edges, compare_peer);
}

static void send_message(void *owner, int rank, const uint8_t *bytes, size_t length)
{
    edge_put(find_edge(owner, rank), bytes, length);
}

static void put_on_edges(struct comm *comm, int except, const uint8_t *bytes, size_t length)
{
    comm_resume(comm);
    for (int i = 0; i < comm->edge_count; i++) {
        if (comm->edges[i].peer != except)
            edge_put(&comm->edges[i], bytes, length);
    }
    comm_flush(comm);
}

static bool is_delivered(struct comm *comm)
{
    bool delivered = true;
    comm_flush(comm);
    for (int i = 0; i < comm->edge_count; i++)
        delivered &= edge_is_delivered(&comm->edges[i]);
    return delivered;
}

/* The cause goes out in all sets at once, and has arrived at the peers' hosts when this rank's callers get
 * it: a process that ends with unread bytes resets its connections, and what it has sent may be lost. Peers
 * that see such an end find the cause first, in whichever set they notice it. */
static void flood_cause(struct comm *comm, int except, const uint8_t *bytes, size_t length)
{
    struct hvd_context *context = comm->context;
    int64_t deadline = clock_now() + DELIVERY_TIME;
    bool delivered = context->cause_sent;
    for (struct comm *each = context->world; !context->cause_sent && each; each = each->next)
        put_on_edges(each, each == comm ? except : -1, bytes, length);
    context->cause_sent = true;
    while (!delivered && clock_now() < deadline) {
        delivered = true;
        for (struct comm *each = context->world; each; each = each->next)
            delivered &= is_delivered(each);
        if (!delivered)
            sched_yield();
    }
}

static void flood_message(void *owner, int except, const uint8_t *bytes, size_t length, bool fatal)
{
    if (fatal)
        flood_cause(owner, except, bytes, length);
    else
        put_on_edges(owner, except, bytes, length);
}

/* The names of these requests are free now: what waited for them is handed over in this turn, before what is
 * submitted later. */
static void run_batch(void *owner, const struct batch *batch)
{
    for (int i = 0; i < batch->count; i++) {
        if (batch->requests[i])
            handle_let_go(batch->requests[i]->owner);
    }
    batch_start(owner, batch);
}

static void finish_request(void *owner, struct pending *request, const hvd_status *status)
{
    (void)owner;
    handle_finish(request->owner, status);
}

static void note_ready(void *owner, const char *name, const struct signature_summary *what, int rank)
{
    char title[REQUEST_NAME_LIMIT];
    observe_ready(owner, name_text(what->operation, what->grouped, name, title, sizeof title), what, rank);
}

/* Collected until the flush is over, then one warning: report_stalls. */
static void note_stall(void *owner, const char *title, int64_t waited, const struct rank_set *missing)
{
    struct comm *comm = owner;
    char ranks[sizeof comm->stalls.groups[0].ranks];
    stall_add(&comm->stalls, rank_set_text(missing, ranks, sizeof ranks), title,
              (double)waited / CLOCK_SECOND);
}

static void explain_silence(void *owner, const struct silence *silence, hvd_status *cause)
{
    heartbeat_explain(owner, silence, cause);
}

static void report_stalls(struct comm *comm)
{
    const struct settings *settings = &comm->context->settings;
    char text[STALL_TEXT];
    stall_text(&comm->stalls, comm->id,
               &(struct stall_limits){settings->stall_warning_seconds, settings->stall_shutdown_seconds},
               text, sizeof text);
    log_warning(comm->context->placement.rank, "%s", text);
}

static void end_join(void *owner, struct pending *request, int last_rank)
{
    (void)owner;
    struct hvd_handle *handle = request->owner;
    handle->value = last_rank;
    handle_finish(handle, &(hvd_status){.code = HVD_OK});
}

static struct choice choose(void *owner, const struct signature_summary *what, uint64_t bytes)
{
    struct comm *comm = owner;
    /* The first batch of this flush: the timeline marks the cycle. */
    if (observed(comm->context) && !comm->decides)
        observe_deciding(comm);
    comm->decides = true;
    struct backend_query query = {.operation = what->operation,
                                  .reduction = what->reduction,
                                  .types = what->types,
                                  .device_type = what->device_type,
                                  .bytes = bytes,
                                  .latency_threshold = comm->latency_threshold,
                                  .piece_bytes = comm->ring_piece_bytes};
    return backends_choose(&comm->backends, &query);
}

static void shutdown_is_done(void *owner)
{
    struct comm *comm = owner;
    for (int peer = mesh_next_peer(comm->mesh, -1); peer >= 0; peer = mesh_next_peer(comm->mesh, peer))
        mesh_expect_end(comm->mesh, peer);
    comm->closed = true;
    progress_closed(comm->context);
}

struct coordinator_output comm_output(struct comm *comm)
{
    return (struct coordinator_output){
        .owner = comm,
        .send = send_message,
        .flood = flood_message,
        .contribute = eager_contribute,
        .combine = eager_combine,
        .run = run_batch,
        .finish = finish_request,
        .joined = end_join,
        .choose = choose,
        .closed = shutdown_is_done,
        .stalled = note_stall,
        .silent = explain_silence,
        .ready = observed(comm->context) ? note_ready : NULL,
    };
}

/* ---- work ------------------------------------------------------------------------------------------ */

static void name_request(struct comm *comm, struct hvd_handle *handle)
{
    const hvd_request *request = &handle->request;
    handle->counters = &comm->counters->operations[request->operation];
    counter_add(&handle->counters->submitted, 1);
    handle->pending.unnamed = !request->name;
    /* handle_create has left room for a name. */
    if (handle->pending.unnamed)
        snprintf(handle->name, REQUEST_NAME_LIMIT, "%s%s.noname.%llu", request->grouped ? "grouped_" : "",
                 hvd_operation_name(request->operation),
                 (unsigned long long)(coordinator_unnamed(comm->coordinator, request->operation) +
                                      comm->held_unnamed[unnamed_kind(request->operation)]));
}

void comm_hold(struct comm *comm, struct hvd_handle *handle)
{
    if (handle->touched.held)
        return;
    name_request(comm, handle);
    handle->touched.held = true;
    comm->held++;
    comm->held_unnamed[unnamed_kind(handle->request.operation)] += handle->pending.unnamed;
}

void comm_take(struct comm *comm, struct hvd_handle *handle)
{
    comm_resume(comm);
    comm->active = true;
    if (handle->touched.held) {
        handle->touched.held = false;
        comm->held--;
        comm->held_unnamed[unnamed_kind(handle->request.operation)] -= handle->pending.unnamed;
    } else {
        name_request(comm, handle);
    }
    /* The later one of two is enough: it shares its batch with none. */
    handle->pending.apart = handle->parts.of || overlaps_any(&comm->context->overlaps, &handle->touched);
    hvd_status refusal;
    if (coordinator_submit(comm->coordinator, &handle->pending, &refusal)) {
        handle_finish(handle, &refusal);
        return;
    }
    observe_submitted(handle);
}

bool comm_suspend(struct comm *comm)
{
    comm->suspended = comm->id && !comm->remover && comm->next_flush == CLOCK_NEVER && comm_is_quiet(comm) &&
                      !comm_is_ready(comm) && mesh_suspend(comm->mesh);
    return comm->suspended;
}

void comm_resume(struct comm *comm)
{
    struct comm *world = comm->context->world;
    if (!comm->suspended)
        return;
    comm->suspended = false;
    comm->idle_turns = 0;
    comm->next_running = world->next_running;
    world->next_running = comm;
    mesh_resume(comm->mesh);
    for (int i = 0; i < comm->edge_count; i++)
        comm->edges[i].alive = true; /* time before does not count */
}

void comm_leave(struct comm *comm)
{
    comm_resume(comm);
    coordinator_leave(comm->coordinator);
    comm->active = true;
}

void comm_abort(struct comm *comm, int lost_rank, const hvd_status *cause)
{
    comm_resume(comm);
    coordinator_abort(comm->coordinator, lost_rank < 0 ? -1 : ranks_find(comm->ranks, comm->size, lost_rank),
                      cause);
}

void comm_end(struct comm *comm, const hvd_status *cause)
{
    comm_abort(comm, -1, cause);
    /* Acted on already: check_health must not begin again. */
    comm->health = coordinator_health(comm->coordinator, NULL);
    comm_flush(comm); /* peers learn the cause before they miss the data */
    backends_abort(&comm->backends, cause);
    if (comm->remover)
        handle_finish(comm->remover, cause);
    comm->remover = NULL;
}

bool comm_flush(struct comm *comm)
{
    return edges_flush(&comm->unsent);
}

bool comm_is_flushed(const struct comm *comm)
{
    return !comm->unsent;
}

bool comm_is_quiet(const struct comm *comm)
{
    return !coordinator_pending_count(comm->coordinator) && backends_idle(&comm->backends) &&
           comm_is_flushed(comm);
}

bool comm_is_ready(const struct comm *comm)
{
    /* Without requests of this rank there is nothing to report or to decide until the set closes. */
    bool open = coordinator_health(comm->coordinator, NULL) == HVD_OK;
    return (comm->active && !(open && comm_is_quiet(comm))) || backends_are_ready(&comm->backends);
}

int64_t comm_deadline(const struct comm *comm)
{
    if (!backends_poll(&comm->backends))
        return comm->next_flush;
    return clock_earlier(comm->next_flush, clock_now() + BACKEND_POLL_PERIOD);
}

/* A message that is lost, or never comes in, would leave other ranks waiting for ever. */
static bool check_memory(struct comm *comm, struct edge *edge)
{
    hvd_status cause;
    if (!edge_starved(edge))
        return true;
    status_set(&cause, HVD_OUT_OF_MEMORY, "rank %d: out of memory for a message to or from rank %d",
               comm->context->placement.rank, comm->ranks[edge->peer]);
    progress_fail(comm, -1, &cause);
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
                mesh_report(comm->mesh, edge->peer); /* the message waits there */
            return any;
        }
        any = true;
        if (event == EDGE_MESSAGE) {
            coordinator_receive(comm->coordinator, edge->peer, bytes, length);
            continue;
        }
        hvd_status cause;
        status_set(&cause, HVD_REFUSED,
                   "rank %d sent rank %d bytes that are no message; is it another program or version?",
                   comm->ranks[edge->peer], comm->context->placement.rank);
        progress_fail(comm, comm->ranks[edge->peer], &cause);
        return true;
    }
}

static bool receive_reported(struct comm *comm)
{
    bool any = false;
    uint64_t news[MESH_NEWS_BITS / 64];
    mesh_take_news(comm->mesh, news);
    for (int word = 0; word < MESH_NEWS_BITS / 64; word++) {
        for (uint64_t bits = news[word]; bits; bits &= bits - 1) {
            for (int peer = word * 64 + __builtin_ctzll(bits); peer < comm->size; peer += MESH_NEWS_BITS) {
                struct edge *edge = find_edge(comm, peer);
                any |= edge && receive_messages(comm, edge);
            }
        }
    }
    return any;
}

static bool receive_all(struct comm *comm)
{
    bool any = false;
    if (mesh_reports(comm->mesh))
        return receive_reported(comm);
    for (int i = 0; i < comm->edge_count; i++)
        any |= receive_messages(comm, &comm->edges[i]);
    return any;
}

static bool is_flush_due(const struct comm *comm, int64_t now)
{
    /* Most turns wait for no time: they do without the clock. */
    return comm->next_flush != CLOCK_NEVER && (now ? now : clock_now()) >= comm->next_flush;
}

bool comm_progress(struct comm *comm, int64_t now)
{
    bool moved = receive_all(comm);
    if (moved || comm->active || is_flush_due(comm, now)) {
        comm->active = comm->decides = false;
        if (comm->tuning)
            tuning_apply(comm);
        coordinator_flush(comm->coordinator, clock_now());
        comm->next_flush = coordinator_next_flush(comm->coordinator);
        if (comm->stalls.count)
            report_stalls(comm);
    }
    for (struct edge *edge = comm->unsent; edge; edge = edge->next_unsent)
        check_memory(comm, edge);
    moved |= comm_flush(comm);
    /* Last, so that a batch that was decided in this turn starts in it. */
    return backends_progress(&comm->backends) || moved;
}
