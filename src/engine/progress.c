/* progress.c - one turn: hands submissions over, lets every communicator act, ends failed ones, suspends idle
 * ones. Callbacks of coordinators and back ends do not change the list of communicators: they leave what they
 * find on the context (`decided`, `fault`, `closings`), and the turn acts on it. Under the progress lock. */
#include "engine/progress.h"

#include "base/clock.h"
#include "base/floats.h"
#include "base/futex.h"
#include "base/status.h"
#include "engine/comm.h"
#include "engine/comm_list.h"
#include "engine/context.h"
#include "engine/handle.h"
#include "engine/heartbeat.h"

#include <assert.h>

/* Polling the kernel costs a system call; shared memory needs none. */
#define TURNS_PER_POLL 16

/* A process set is suspended after this many idle turns, so that one in constant use is not resumed for each
 * operation. */
#define IDLE_TURNS 1000

/* A process set with an operation each second keeps its memory. */
#define SHRINK_TIME (2 * CLOCK_SECOND)

/* ---- submissions ----------------------------------------------------------------------------------- */

/* Returns an earlier operation that must end first, or NULL: one of another set, or one that is held back
 * itself, on the same memory; or one of the same name, which is another operation. */
static struct hvd_handle *find_before(const struct hvd_context *context, const struct comm *comm,
                                      const struct hvd_handle *handle)
{
    struct hvd_handle *before = NULL;
    if (context->world->next || context->world->held) /* otherwise there is no other set */
        before = overlaps_before(&context->overlaps, &handle->footprint);
    if (before || !comm || !handle->request.name)
        return before;
    const struct pending *named = coordinator_find(comm->coordinator, handle->pending.name);
    return named ? named->owner : NULL;
}

/* Hands the operation to its communicator, whose coordinator orders it among those of the set on the same
 * memory. Two sets have independent orders, so between them the order of submission counts: the operation is
 * held back here until those of other sets have ended, after those of its own set that are held back. Of two
 * operations of one name the later one waits until the earlier one is decided. A join waits for all earlier
 * requests of this rank. */
static void hand_over(struct hvd_context *context, struct hvd_handle *handle)
{
    struct comm *comm = comm_list_find(context, handle->request.process_set);
    struct hvd_handle *before = find_before(context, comm, handle);
    if (!comm) {
        hvd_status removed;
        status_set(&removed, HVD_SHUT_DOWN, "process set %d was removed", (int)handle->request.process_set);
        handle_finish(handle, &removed);
    } else if (handle->request.operation == HVD_REMOVE_PROCESS_SET &&
               handle->request.root >= HVD_OPENED_SETS) {
        comm_list_decided(context, handle); /* this rank decides alone */
    } else if (before) {
        comm_hold(comm, handle);
        handle->next = before->held_back;
        before->held_back = handle;
    } else if (handle->request.operation == HVD_JOIN && comm->held) {
        handle->next = context->joins;
        context->joins = handle;
    } else {
        handle_release_held(handle); /* the coordinator orders them now, or they wait for another one */
        comm_submit(comm, handle);
    }
}

static void hand_over_all(struct hvd_context *context, struct hvd_handle *newest)
{
    struct hvd_handle *oldest = handle_reverse(newest);
    while (oldest) {
        struct hvd_handle *next = oldest->next;
        hand_over(context, oldest);
        oldest = next;
    }
}

void progress_resume(struct hvd_context *context)
{
    assert(context_is_held(context));
    while (context->released) {
        struct hvd_handle *released = context->released;
        context->released = NULL;
        hand_over_all(context, released);
        struct hvd_handle *joins = context->joins;
        context->joins = NULL;
        hand_over_all(context, joins);
    }
}

static bool hand_over_submissions(struct hvd_context *context)
{
    struct hvd_handle *newest = NULL;
    if (atomic_load_explicit(&context->queue, memory_order_relaxed))
        newest = atomic_exchange(&context->queue, NULL);
    if (atomic_load_explicit(&context->added, memory_order_acquire))
        comm_list_adopt(context); /* after the queue is emptied: a set is added before requests to it */
    struct hvd_handle *oldest = handle_reverse(newest);
    while (oldest) {
        struct hvd_handle *next = oldest->next;
        overlaps_enter(&context->overlaps, &oldest->request, &oldest->footprint, oldest);
        hand_over(context, oldest);
        oldest = next;
    }
    return newest;
}

/* ---- the end --------------------------------------------------------------------------------------- */

static void set_closed(struct hvd_context *context)
{
    if (atomic_exchange(&context->closed, HANDLE_DONE) == HANDLE_AWAITED)
        futex_wake_all(&context->closed);
}

static void end_if_closed(struct hvd_context *context)
{
    context->closings = false;
    for (const struct comm *comm = context->world; comm; comm = comm->next) {
        if (!comm->closed)
            return;
    }
    set_closed(context);
}

static void leave_all(struct hvd_context *context)
{
    for (struct comm *comm = context->world; comm; comm = comm->next)
        comm_leave(comm);
}

void progress_end(struct hvd_context *context, const hvd_status *cause)
{
    assert(context_is_held(context));
    context->now = 0; /* it may be called between two turns */
    context_fail(context, cause);
    for (struct comm *comm = context->world; comm; comm = comm->next)
        comm_end(comm, cause);
    /* No peer is left for the shutdown handshake. */
    set_closed(context);
}

/* Acts once on each change of a coordinator's health: after a close, decided batches continue; after a
 * failure no communicator continues. A failure may follow a close; users see the first cause. */
static void check_health(struct comm *comm)
{
    hvd_code code = coordinator_health(comm->coordinator, NULL);
    if (code == comm->health)
        return;
    hvd_status cause;
    comm->health = coordinator_health(comm->coordinator, &cause);
    if (code == HVD_TIMED_OUT && comm->context->leave_said)
        log_warning(comm->context->placement.rank, "leaving without the shutdown handshake: %s", cause.text);
    if (code != HVD_SHUT_DOWN) {
        progress_end(comm->context, &cause);
    } else if (comm->id == 0) {
        context_fail(comm->context, &cause);
        leave_all(comm->context);
    }
}

static bool advance(struct comm *comm, int64_t now)
{
    struct hvd_context *context = comm->context;
    bool moved = comm_progress(comm, now);
    /* All ranks add and remove process sets at the same place of their order. */
    struct hvd_handle *oldest = handle_reverse(context->decided);
    context->decided = NULL;
    while (oldest) {
        struct hvd_handle *next = oldest->next;
        comm_list_decided(context, oldest);
        oldest = next;
    }
    check_health(comm);
    return moved;
}

static void check_losses(struct comm *comm)
{
    hvd_status cause;
    int peer;
    while ((peer = mesh_next_lost(comm->mesh, &cause)) >= 0) {
        /* Messages that were sent before the loss are read first: SHUTDOWN_ACK, or the true cause. */
        advance(comm, 0);
        if (!heartbeat_attribute_loss(comm, peer))
            comm_abort(comm, peer, &cause);
        check_health(comm);
    }
}

/* ---- a turn ---------------------------------------------------------------------------------------- */

static void shrink_later(struct comm *comm)
{
    comm->shrink_at = clock_now() + SHRINK_TIME;
    if (comm->shrinks)
        return;
    struct comm **place = &comm->context->shrinking;
    while (*place)
        place = &(*place)->next_shrinking;
    comm->shrinks = true;
    comm->next_shrinking = NULL;
    *place = comm;
}

/* A set that was resumed in between is listed again when it is next suspended. */
static void shrink_idle(struct hvd_context *context)
{
    struct comm *comm;
    while ((comm = context->shrinking) && comm->shrink_at <= clock_now()) {
        context->shrinking = comm->next_shrinking;
        comm->shrinks = false;
        if (comm->suspended && !mesh_return_memory(comm->mesh))
            shrink_later(comm);
    }
}

void progress_suspend(struct hvd_context *context, unsigned turns)
{
    assert(context_is_held(context));
    for (struct comm **place = &context->world->next_running; *place;) {
        struct comm *comm = *place;
        if (comm->idle_turns < turns || !comm_suspend(comm)) {
            place = &comm->next_running;
            continue;
        }
        *place = comm->next_running;
        if (mesh_holds_memory(comm->mesh))
            shrink_later(comm);
    }
}

static bool turn(struct hvd_context *context, int64_t now)
{
    bool moved = hand_over_submissions(context);
    if (atomic_load_explicit(&context->returned, memory_order_relaxed))
        moved |= atomic_exchange(&context->returned, false); /* the back ends find the collective below */
    bool poll = context->drive.turns++ % TURNS_PER_POLL == 0;
    if (!context->leave_said && atomic_load_explicit(&context->leaving, memory_order_relaxed)) {
        context->leave_said = true;
        leave_all(context);
    }
    if (poll) {
        mesh_poll(context->world->mesh);
        progress_suspend(context, IDLE_TURNS);
        shrink_idle(context);
    }
    for (struct comm *comm; (comm = mesh_next_resumed(context->world->mesh));)
        comm_resume(comm);
    for (struct comm *comm = context->world; comm; comm = comm->next_running) {
        bool comm_moved = advance(comm, now);
        comm->idle_turns = comm_moved ? 0 : comm->idle_turns + 1;
        check_losses(comm);
        moved |= comm_moved;
    }
    /* A fault is reported again in every later turn: only the first time has an effect. */
    if (context->fault.code) {
        comm_abort(context->world, -1, &context->fault);
        check_health(context->world);
    }
    if (context->closings)
        end_if_closed(context);
    comm_list_reap(context);
    progress_resume(context);
    return moved;
}

bool progress(struct hvd_context *context, int64_t now)
{
    assert(context_is_held(context));
    context->now = 0;
    uint64_t mode = floats_begin();
    bool moved = turn(context, now);
    floats_end(mode);
    return moved;
}

int64_t progress_deadline(const struct hvd_context *context)
{
    assert(context_is_held(context));
    int64_t deadline = mesh_deadline(context->world->mesh);
    if (context->shrinking)
        deadline = clock_earlier(deadline, context->shrinking->shrink_at);
    for (const struct comm *comm = context->world; comm; comm = comm->next_running)
        deadline = clock_earlier(deadline, comm_deadline(comm));
    return deadline;
}
