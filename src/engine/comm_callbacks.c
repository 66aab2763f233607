/* comm_callbacks.c - what the decisions of a process set's coordinator lead to, and the turns that its back
 * ends ask for. Under the progress lock. */
#include "engine/comm_callbacks.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/types.h"
#include "coordinate/name.h"
#include "engine/batch.h"
#include "engine/context.h"
#include "engine/eager_data.h"
#include "engine/explain.h"
#include "engine/fault.h"
#include "engine/handle.h"
#include "engine/nonfinite.h"
#include "engine/observe.h"
#include "engine/recorder.h"

#include <sched.h>

/* How long a failing rank waits until the peers' hosts have the cause. */
#define DELIVERY_TIME (CLOCK_SECOND / 10)

/* ---- the coordinator's output ------------------------------------------------------------------------ */

static void send_message(void *owner, int rank, const uint8_t *bytes, size_t length)
{
    edge_put(comm_edge(owner, rank), bytes, length);
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

/* Sends the cause in all sets at once, and waits until the peers' hosts have it before this rank's callers
 * do: a process that ends with unread bytes resets its connections, which may discard bytes that it has sent.
 * Peers that notice such an end read the cause first, in whichever set they notice it. */
static void flood_cause(struct comm *comm, int except, const uint8_t *bytes, size_t length)
{
    struct hvd_context *context = comm->context;
    int64_t deadline = clock_now() + DELIVERY_TIME;
    bool delivered = context->cause_sent;
    for (struct comm *each = context->world; !context->cause_sent && each; each = each->next)
        put_on_edges(each, each == comm ? except : -1, bytes, length);
    if (!context->cause_sent) {
        hvd_fault fault = {0};
        coordinator_health(comm->coordinator, &fault.status);
        context_fail(context, &fault.status);
        fault_publish(context, &fault, deadline, NULL);
    }
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

/* The names of these requests are free now: requests that waited for them are handed over in this turn,
 * before later submissions. */
static void run_batch(void *owner, const struct batch *batch)
{
    const struct comm *comm = owner;
    recorder_decided(comm->context, batch);
    for (int i = 0; i < batch->count; i++) {
        if (batch->requests[i])
            handle_release_held(batch->requests[i]->owner);
    }
    batch_start(owner, batch);
}

/* Once a caller knows from here that a rank has left, hvd_health returns the same. */
static void finish_request(void *owner, struct pending *request, const hvd_status *status)
{
    const struct comm *comm = owner;
    if (status->code == HVD_SHUT_DOWN && comm->id == 0)
        context_fail(comm->context, status);
    handle_finish(request->owner, status);
}

static void note_found(void *owner, int rank, hvd_operation operation, uint32_t mark)
{
    nonfinite_found(owner, rank, operation, mark);
}

static void note_ready(void *owner, const char *name, const struct signature_summary *what, int rank)
{
    char title[REQUEST_NAME_LIMIT];
    observe_ready(owner, name_text(what->operation, what->grouped, name, title, sizeof title), what, rank);
}

/* The tree of all ranks shows every rank; those of other sets would count one wait again. */
static void note_late(void *owner, int reporter, int rank, const struct lateness *lateness)
{
    struct comm *comm = owner;
    page_set_late(
        &comm->context->page, reporter,
        &(struct page_lateness){comm->ranks[rank], lateness->total, lateness->longest, lateness->count},
        context_now(comm->context));
}

static void note_negotiated(void *owner, int64_t time)
{
    struct comm *comm = owner;
    page_add_negotiation(&comm->context->page, time);
}

/* Stalls are collected until the flush has ended; comm_progress then writes one warning. */
static void note_stall(void *owner, const char *title, int64_t waited, const struct rank_set *missing)
{
    struct comm *comm = owner;
    char ranks[sizeof comm->stalls.groups[0].ranks];
    stall_add(&comm->stalls, rank_set_text(missing, ranks, sizeof ranks), title,
              (double)waited / CLOCK_SECOND);
}

static uint64_t own_rows(void *owner, const struct pending *request, int index)
{
    (void)owner;
    const hvd_request *what = &((const struct hvd_handle *)request->owner)->request;
    return (uint64_t)(operation_takes(what->operation, ARGUMENT_splits) ? what->splits[index]
                                                                        : what->inputs[index].shape[0]);
}

static void write_silence(void *owner, const struct silence *silence, hvd_status *cause)
{
    explain_silence(owner, silence, cause);
}

static void end_join(void *owner, struct pending *request, int last_rank)
{
    (void)owner;
    struct hvd_handle *handle = request->owner;
    handle->value = last_rank;
    handle_finish(handle, &(hvd_status){.code = HVD_OK});
}

static struct choice choose(void *owner, const struct signature_summary *what, uint64_t bytes,
                            bool rows_unknown)
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
                                  .rows_unknown = rows_unknown,
                                  .latency_threshold = comm->latency_threshold,
                                  .piece_bytes = comm->ring_piece_bytes};
    signature_factors(what, &query.prescale, &query.postscale);
    return backends_choose(&comm->backends, &query);
}

static void close_set(void *owner)
{
    struct comm *comm = owner;
    for (int peer = mesh_next_peer(comm->mesh, -1); peer >= 0; peer = mesh_next_peer(comm->mesh, peer))
        mesh_expect_end(comm->mesh, peer);
    comm->closed = true;
    comm->context->closings = true;
}

/* ---- turns (turns.h) ---------------------------------------------------------------------------------- */

static void add_turn(struct hvd_context *context, int set)
{
    hvd_status problem;
    if (turns_add(&context->order, set))
        return;
    context_no_memory(context, &problem);
    context_fault(context, &problem);
}

static void give_turn(void *owner, int set)
{
    const struct comm *world = owner;
    struct comm *comm = mesh_find(world->mesh, (unsigned)set);
    if (!comm) /* this rank is not a member */
        return;
    add_turn(world->context, set);
    comm_resume(comm);
}

static void ask_turn(void *owner)
{
    const struct comm *comm = owner;
    struct comm *world = comm->context->world;
    if (comm == world) {
        add_turn(comm->context, 0);
    } else if (comm->topology.place_of[comm->rank] == 0) {
        coordinator_ask_turn(world->coordinator, comm->id);
        world->active = world->asks = true;
    }
}

static bool has_turn(const void *owner)
{
    const struct comm *comm = owner, *world = comm->context->world;
    if (comm->context->order.count || !coordinator_health(world->coordinator, NULL))
        return turns_has(&comm->context->order, comm->id);
    /* No more turns are given, so the sets run one after the other: is one with a lower id still at work? */
    for (const struct comm *other = world->next; other; other = other->next) {
        if (other->id < comm->id &&
            (!coordinator_health(other->coordinator, NULL) || other->backends.started.head))
            return false;
    }
    return true;
}

static void use_turn(void *owner)
{
    struct turns *turns = &((struct comm *)owner)->context->order;
    if (turns->count)
        turns_use(turns);
}

struct turn_source comm_turns(struct comm *comm)
{
    return (struct turn_source){ask_turn, has_turn, use_turn, comm};
}

struct coordinator_output comm_output(struct comm *comm)
{
    return (struct coordinator_output){
        .owner = comm,
        .send = send_message,
        .flood = flood_message,
        .contribute = eager_contribute,
        .rows = own_rows,
        .combine = eager_combine,
        .run = run_batch,
        .finish = finish_request,
        .found = note_found,
        .joined = end_join,
        .choose = choose,
        .closed = close_set,
        .stalled = note_stall,
        .silent = write_silence,
        .turn = give_turn,
        .ready = observed(comm->context) ? note_ready : NULL,
        .late = comm->id == 0 ? note_late : NULL,
        .negotiated = note_negotiated,
    };
}
