/* lane.c - see lane.h. */
#include "engine/lane.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/types.h"
#include "engine/batch.h"
#include "engine/context.h"
#include "engine/observe.h"
#include "engine/parts.h"
#include "engine/progress.h"
#include "engine/sets.h"
#include "engine/tuning.h"

#include <stdio.h>

/* ---- what the coordinator asks for ----------------------------------------------------------------- */

static struct edge *find_edge(const struct lane *lane, int rank)
{
    for (int i = 0; i < lane->edge_count; i++) {
        if (lane->edges[i].peer == rank)
            return &lane->edges[i];
    }
    return NULL; /* not reached: the mesh connects to all neighbours in the tree */
}

static void send_message(void *owner, int rank, const uint8_t *bytes, size_t length)
{
    edge_put(find_edge(owner, rank), bytes, length);
}

static void flood_message(void *owner, int except, const uint8_t *bytes, size_t length)
{
    struct lane *lane = owner;
    for (int i = 0; i < lane->edge_count; i++) {
        if (lane->edges[i].peer != except)
            edge_put(&lane->edges[i], bytes, length);
    }
}

static void run_batch(void *owner, const struct batch *batch)
{
    batch_start(owner, batch);
}

static void finish_request(void *owner, struct pending *request, const hvd_status *status)
{
    (void)owner;
    handle_finish(request->owner, status);
}

static void note_ready(void *owner, const char *name, const struct signature_summary *what, int first,
                       int last)
{
    for (int rank = first; rank <= last; rank++)
        observe_ready(owner, name, what, rank);
}

/* Collected until the flush is over, then told in one warning: report_stalls. */
static void note_stall(void *owner, const char *name, int64_t waited, const struct rank_set *missing)
{
    struct lane *lane = owner;
    char ranks[sizeof lane->stalls.groups[0].ranks];
    stall_add(&lane->stalls, rank_set_text(missing, ranks, sizeof ranks), name,
              (double)waited / CLOCK_SECOND);
}

static void report_stalls(struct lane *lane)
{
    const struct settings *settings = &lane->context->settings;
    char text[STALL_TEXT];
    stall_text(&lane->stalls, lane->id,
               &(struct stall_limits){settings->stall_warning_seconds, settings->stall_shutdown_seconds},
               text, sizeof text);
    log_warning(lane->context->placement.rank, "%s", text);
}

static void end_join(void *owner, struct pending *request, int last_rank)
{
    (void)owner;
    struct hvd_handle *handle = request->owner;
    handle->value = last_rank;
    handle_finish(handle, &(hvd_status){.code = HVD_OK});
}

static uint16_t choose_algorithm(void *owner, hvd_operation operation, hvd_reduction reduction,
                                 uint64_t bytes)
{
    struct lane *lane = owner;
    /* The first batch of this flush: the timeline marks the cycle. */
    if (observed(lane->context) && !lane->decides)
        observe_deciding(lane);
    lane->decides = true;
    uint16_t row = algorithm_choose(operation, reduction, bytes, lane->size, lane->latency_threshold,
                                    &lane->context->settings);
    return method_of(row, lane->ring_piece_bytes);
}

static void all_said_goodbye(void *owner)
{
    struct lane *lane = owner;
    for (int peer = mesh_next_peer(lane->mesh, -1); peer >= 0; peer = mesh_next_peer(lane->mesh, peer))
        mesh_expect_end(lane->mesh, peer);
    lane->closed = true;
    progress_closed(lane->context);
}

struct coordinator_output lane_output(struct lane *lane)
{
    return (struct coordinator_output){
        .owner = lane,
        .send = send_message,
        .flood = flood_message,
        .run = run_batch,
        .finish = finish_request,
        .joined = end_join,
        .choose_algorithm = choose_algorithm,
        .closed = all_said_goodbye,
        .stalled = note_stall,
        .ready = observed(lane->context) ? note_ready : NULL,
    };
}

/* ---- work ------------------------------------------------------------------------------------------ */

static void name_request(struct lane *lane, struct hvd_handle *handle)
{
    const hvd_request *request = &handle->request;
    handle->counters = &lane->counters->operations[request->operation];
    counter_add(&handle->counters->submitted, 1);
    handle->pending.unnamed = !request->name && !handle->part;
    /* handle_create has left room for a name. */
    if (handle->pending.unnamed)
        snprintf(handle->name, REQUEST_NAME_LIMIT, "%s%s.noname.%llu", request->grouped ? "grouped_" : "",
                 hvd_operation_name(request->operation),
                 (unsigned long long)(coordinator_unnamed(lane->coordinator, request->operation) +
                                      lane->held_unnamed[request->operation]));
    if (handle->whole)
        parts_name(handle);
}

void lane_hold(struct lane *lane, struct hvd_handle *handle)
{
    if (handle->touched.held)
        return;
    name_request(lane, handle);
    handle->touched.held = true;
    lane->held++;
    lane->held_unnamed[handle->request.operation] += handle->pending.unnamed;
}

void lane_take(struct lane *lane, struct hvd_handle *handle)
{
    lane_resume(lane);
    lane->active = true;
    if (handle->touched.held) {
        handle->touched.held = false;
        lane->held--;
        lane->held_unnamed[handle->request.operation] -= handle->pending.unnamed;
    } else {
        name_request(lane, handle);
    }
    /* The later one of two is enough: it shares its batch with none. */
    handle->pending.apart = overlaps_any(&lane->context->overlaps, &handle->touched);
    hvd_status refusal;
    if (parts_check(handle, &refusal) || coordinator_submit(lane->coordinator, &handle->pending, &refusal)) {
        handle_finish(handle, &refusal);
        return;
    }
    observe_submitted(handle);
}

bool lane_suspend(struct lane *lane)
{
    lane->suspended = lane->id && !lane->remover && lane->next_flush == CLOCK_NEVER && lane_is_quiet(lane) &&
                      !lane_is_ready(lane) && mesh_suspend(lane->mesh);
    return lane->suspended;
}

void lane_resume(struct lane *lane)
{
    struct lane *world = lane->context->world;
    if (!lane->suspended)
        return;
    lane->suspended = false;
    lane->idle_turns = 0;
    lane->next_running = world->next_running;
    world->next_running = lane;
    mesh_resume(lane->mesh);
    for (int i = 0; i < lane->edge_count; i++)
        lane->edges[i].heard = true; /* silence before was no silence */
}

void lane_leave(struct lane *lane)
{
    lane_resume(lane);
    coordinator_leave(lane->coordinator);
    lane->active = true;
}

void lane_abort(struct lane *lane, int lost_rank, const hvd_status *cause)
{
    lane_resume(lane);
    coordinator_abort(lane->coordinator, lost_rank < 0 ? -1 : ranks_find(lane->ranks, lane->size, lost_rank),
                      cause);
}

void lane_end(struct lane *lane, const hvd_status *cause)
{
    lane_abort(lane, -1, cause);
    /* Acted on already: check_health must not begin again. */
    lane->health = coordinator_health(lane->coordinator, NULL);
    lane_flush(lane); /* peers learn the cause before they miss the data */
    executor_abort(lane->executor, cause);
    if (lane->remover)
        handle_finish(lane->remover, cause);
    lane->remover = NULL;
}

bool lane_flush(struct lane *lane)
{
    bool moved = false;
    for (int i = 0; i < lane->edge_count; i++)
        moved |= edge_flush(&lane->edges[i]);
    return moved;
}

bool lane_is_flushed(const struct lane *lane)
{
    for (int i = 0; i < lane->edge_count; i++) {
        if (!edge_is_flushed(&lane->edges[i]))
            return false;
    }
    return true;
}

bool lane_is_quiet(const struct lane *lane)
{
    return !coordinator_pending_count(lane->coordinator) && executor_idle(lane->executor) &&
           lane_is_flushed(lane);
}

bool lane_is_ready(const struct lane *lane)
{
    /* Without requests of this rank there is nothing to report or to decide until the set closes. */
    bool open = coordinator_health(lane->coordinator, NULL) == HVD_OK;
    return (lane->active && !(open && lane_is_quiet(lane))) || executor_is_ready(lane->executor);
}

static bool receive_messages(struct lane *lane, struct edge *edge)
{
    const uint8_t *bytes;
    size_t length;
    bool any = false;
    for (;;) {
        enum edge_event event = edge_next(edge, &bytes, &length);
        if (event == EDGE_NOTHING)
            return any;
        any = true;
        if (event == EDGE_MESSAGE) {
            coordinator_receive(lane->coordinator, edge->peer, bytes, length);
            continue;
        }
        hvd_status cause;
        status_set(&cause, HVD_REFUSED,
                   "rank %d sent rank %d bytes that are no message; is it another program or version?",
                   lane->ranks[edge->peer], lane->context->placement.rank);
        progress_fail(lane, lane->ranks[edge->peer], &cause);
        return true;
    }
}

/* A message that is lost, or never comes in, would leave other ranks waiting for ever. */
static void check_memory(struct lane *lane)
{
    for (int i = 0; i < lane->edge_count; i++) {
        hvd_status cause;
        if (!edge_starved(&lane->edges[i]))
            continue;
        status_set(&cause, HVD_OUT_OF_MEMORY, "rank %d: out of memory for a message to or from rank %d",
                   lane->context->placement.rank, lane->ranks[lane->edges[i].peer]);
        progress_fail(lane, -1, &cause);
    }
}

bool lane_progress(struct lane *lane)
{
    bool moved = false;
    for (int i = 0; i < lane->edge_count; i++)
        moved |= receive_messages(lane, &lane->edges[i]);
    /* Most turns wait for no time: they do without the clock. */
    int64_t now = lane->next_flush == CLOCK_NEVER ? 0 : clock_now();
    if (moved || lane->active || now >= lane->next_flush) {
        lane->active = lane->decides = false;
        if (lane->tuning)
            tuning_apply(lane);
        coordinator_flush(lane->coordinator, now ? now : clock_now());
        lane->next_flush = coordinator_next_flush(lane->coordinator);
        if (lane->stalls.count)
            report_stalls(lane);
    }
    check_memory(lane);
    moved |= lane_flush(lane);
    /* Last, so that a batch that was decided in this turn starts in it. */
    return executor_progress(lane->executor) || moved;
}
