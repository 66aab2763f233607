/* progress.c - one turn: take, coordinate, run, finish. See progress.h. */
#include "engine/progress.h"

#include "base/clock.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/status.h"

/* Looking at the kernel costs a system call; shared memory needs none. */
#define TURNS_PER_POLL 16

static bool take_submissions(struct hvd_context *context)
{
    if (!atomic_load_explicit(&context->queue, memory_order_relaxed))
        return false;
    struct hvd_handle *oldest = handle_reverse(atomic_exchange(&context->queue, NULL));
    while (oldest) {
        struct hvd_handle *next = oldest->next;
        lane_take(&context->world, oldest);
        oldest = next;
    }
    return true;
}

static void set_closed(struct hvd_context *context)
{
    if (atomic_exchange(&context->closed, HANDLE_DONE) == HANDLE_AWAITED)
        futex_wake_all(&context->closed);
}

static void record_failure(struct hvd_context *context, const hvd_status *cause)
{
    if (atomic_load(&context->failed))
        return;
    status_copy(&context->failure, cause);
    atomic_store(&context->failed, true);
}

/* The set's own end, whoever brought it about: after a close the batches that were decided go on, after a
 * failure nothing does. A failure may follow a close; what users are told is the first cause. */
static void check_health(struct hvd_context *context)
{
    hvd_code code = coordinator_health(context->world.coordinator, NULL);
    if (code == context->health)
        return;
    hvd_status cause;
    context->health = coordinator_health(context->world.coordinator, &cause);
    log_debug(context->placement.rank, "no further operations: %s", cause.text);
    record_failure(context, &cause);
    if (code == HVD_SHUT_DOWN)
        return;
    executor_abort(context->executor, &cause);
    lane_flush(&context->world);
    set_closed(context);
}

void progress_fail(struct hvd_context *context, int lost_rank, const hvd_status *cause)
{
    coordinator_abort(context->world.coordinator, lost_rank, cause);
    check_health(context);
}

void progress_fault(struct hvd_context *context, const hvd_status *cause)
{
    if (!context->fault.code)
        status_copy(&context->fault, cause);
}

static void check_losses(struct hvd_context *context)
{
    hvd_status cause;
    int peer;
    while ((peer = mesh_next_lost(context->mesh, &cause)) >= 0) {
        /* What the peer, or others, said before the end comes first: a farewell, or the true cause. */
        lane_progress(&context->world);
        progress_fail(context, peer, &cause);
    }
}

bool progress(struct hvd_context *context)
{
    bool moved = take_submissions(context);
    if (atomic_load_explicit(&context->leaving, memory_order_relaxed) && !context->leave_said) {
        context->leave_said = true;
        coordinator_leave(context->world.coordinator);
        context->world.active = true;
    }
    if (context->turns++ % TURNS_PER_POLL == 0)
        mesh_poll(context->mesh);
    moved |= lane_progress(&context->world);
    moved |= executor_progress(context->executor);
    if (context->fault.code)
        progress_fail(context, -1, &context->fault);
    check_health(context);
    check_losses(context);
    return moved;
}

int64_t progress_deadline(const struct hvd_context *context)
{
    return context->world.next_flush;
}

void progress_closed(struct hvd_context *context)
{
    set_closed(context);
}
