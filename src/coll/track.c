/* track.c - runs the collectives of one channel: plans their phases and moves their steps. The thread that
 * makes progress. Steps are queued phase by phase, in the order of the schedule, at the link that they need;
 * only the head of a queue moves. All ranks plan collectives in one order, so both ends of a link agree on
 * the next bytes.
 */
#include "coll/track.h"

#include "base/pool.h"
#include "base/status.h"
#include "base/types.h"
#include "coll/staging.h"

#include <stdlib.h>

/* ---- queues --------------------------------------------------------------------------------------- */

static void task_queue_push(struct task_queue *queue, struct task *task)
{
    task->next = NULL;
    if (queue->head)
        queue->tail->next = task;
    else
        queue->head = task;
    queue->tail = task;
}

/* ---- collectives --------------------------------------------------------------------------------------- */

static struct run *run_start(struct track *track, struct collective *collective)
{
    struct run *run = track->spare;
    if (run)
        track->spare = run->next;
    else if (!(run = calloc(1, sizeof *run)))
        return NULL;
    run_begin(run, collective);
    run->previous = NULL;
    run->next = track->running;
    if (run->next)
        run->next->previous = run;
    track->running = run;
    return run;
}

static void collective_finish(struct track *track, struct collective *collective)
{
    free(collective->scratch);
    collective->scratch = NULL;
    if (collective->staging && !collective->status.code) {
        collective_queue_push(&track->leaving, collective);
        return;
    }
    staging_end(collective);
    collective_queue_push(track->finished, collective);
}

/* Collectives leave in the order in which their steps ended: a device also copies in order. */
static bool leaving_finish(struct track *track)
{
    bool any = false;
    for (struct collective *collective; (collective = track->leaving.head); any = true) {
        hvd_code code = staging_copy_output(collective, &collective->status);
        if (code == HVD_IN_PROGRESS)
            return any;
        if (!code)
            status_ok(&collective->status);
        collective_queue_pop(&track->leaving);
        staging_end(collective);
        collective_queue_push(track->finished, collective);
    }
    return any;
}

static void run_finish(struct track *track, struct run *run)
{
    if (run->previous)
        run->previous->next = run->next;
    else
        track->running = run->next;
    if (run->next)
        run->next->previous = run->previous;
    collective_finish(track, run->collective);
    run->next = track->spare;
    track->spare = run;
}

static struct endpoint *endpoint_add(struct track *track, int peer, hvd_status *status)
{
    struct endpoint *endpoint = calloc(1, sizeof *endpoint);
    if (!endpoint) {
        status_no_memory(status);
        return NULL;
    }
    endpoint->peer = peer;
    endpoint->next = track->endpoints;
    track->endpoints = endpoint;
    return endpoint;
}

static struct endpoint *endpoint_find(const struct track *track, int peer)
{
    struct endpoint *endpoint = track->endpoints;
    while (endpoint && endpoint->peer != peer)
        endpoint = endpoint->next;
    return endpoint;
}

/* Makes all endpoints of a phase first, so that nothing must be undone when memory runs out. */
static hvd_code endpoints_reserve(struct track *track, const struct schedule *schedule,
                                  struct collective *collective)
{
    for (int i = 0; i < schedule->count; i++) {
        const struct step *step = &schedule->steps[i];
        if (step->length > 0 && !step_is_local(step) && !endpoint_find(track, step->peer) &&
            !endpoint_add(track, step->peer, &collective->status))
            return collective->status.code;
    }
    return HVD_OK;
}

static void task_submit(struct track *track, struct task *task)
{
    const struct step *step = task->step;
    if (step->length == 0) /* it is done already, here and at the peer */
        return;
    task->run->left++;
    if (step_is_local(step)) {
        task_queue_push(&track->local, task);
        return;
    }
    struct endpoint *endpoint = endpoint_find(track, step->peer);
    if (!endpoint->busy) { /* from now on turns visit it */
        endpoint->busy = true;
        endpoint->next_busy = NULL;
        *track->busy_end = endpoint;
        track->busy_end = &endpoint->next_busy;
    }
    task_queue_push(step->kind == STEP_SEND ? &endpoint->sends : &endpoint->receives, task);
}

static bool tasks_reserve(struct run *run, int count)
{
    if (count <= run->capacity)
        return true;
    struct task *tasks = pages_alloc((size_t)count * sizeof *tasks);
    if (!tasks)
        return false;
    pages_free(run->tasks, (size_t)run->capacity * sizeof *tasks);
    run->tasks = tasks;
    run->capacity = count;
    return true;
}

/* Plans the next phase and queues its steps. */
static hvd_code run_plan(struct track *track, struct run *run)
{
    struct collective *collective = run->collective;
    struct schedule *schedule = &run->schedule;
    schedule_clear(schedule);
    if (collective->phased)
        collective->phased(collective, run->phase);
    TRY(algorithm_plan(collective, run->phase++, schedule, &run->more, &collective->status));
    if (schedule->failed || !tasks_reserve(run, schedule->count))
        return status_no_memory(&collective->status);
    TRY(endpoints_reserve(track, schedule, collective));
    for (int i = 0; i < schedule->count; i++) {
        task_begin(&run->tasks[i], run, &schedule->steps[i]);
        if (schedule->steps[i].gate != STEP_NO_GATE)
            run->tasks[schedule->steps[i].gate].awaited = true;
        task_submit(track, &run->tasks[i]);
    }
    return HVD_OK;
}

static bool planner_next(struct track *track)
{
    struct collective *collective = track->stopped ? NULL : collective_queue_pop(&track->waiting);
    if (!collective)
        return false;
    status_ok(&collective->status);
    hvd_code code = staging_begin(collective, &collective->status);
    track->planner = code ? NULL : run_start(track, collective);
    if (!track->planner) {
        if (!code)
            status_no_memory(&collective->status);
        track->stopped = true;
        collective_finish(track, collective);
    }
    return track->planner != NULL;
}

/* Plans all that can be planned: the planner's next phase once the previous one is done, then the next
 * collective. */
static void track_plan(struct track *track)
{
    while (track->planner || planner_next(track)) {
        struct run *run = track->planner;
        if (run->left)
            return;
        hvd_status *status = &run->collective->status;
        hvd_code code = run->phase ? HVD_OK : staging_copy_input(run->collective, status);
        if (code == HVD_IN_PROGRESS) { /* the input is not there yet */
            status_ok(status);
            return;
        }
        if (code || run_plan(track, run)) {
            /* It has no steps in any queue: those of its earlier phases are done. */
            track->stopped = true;
            track->planner = NULL;
            run_finish(track, run);
        } else if (!run->more) {
            track->planner = NULL;
            if (!run->left)
                run_finish(track, run);
        }
    }
}

/* ---- moving bytes --------------------------------------------------------------------------------- */

static void task_end(struct track *track, struct task *task)
{
    struct run *run = task->run;
    run->left--;
    if (!run->left && !run->more)
        run_finish(track, run);
}

/* Ends a task whose bytes have all moved, unless the peer still reads memory that was lent to it. */
static void task_finish(struct track *track, struct task_queue *queue, struct endpoint *endpoint)
{
    struct task *task = queue->head;
    queue->head = task->next;
    if (endpoint && task->step->kind == STEP_SEND) {
        struct link *link = endpoint->link;
        link->operations->end_send(link);
        if (link->lent && !link->operations->taken(link, link->lent)) {
            task->lent = link->lent;
            task_queue_push(&endpoint->lent, task);
            return;
        }
    } else if (endpoint) {
        endpoint->link->operations->end_receive(endpoint->link);
    }
    task_end(track, task);
}

static bool lent_finish(struct track *track, struct endpoint *endpoint)
{
    bool any = false;
    struct link *link = endpoint->link;
    if (!link)
        return false;
    for (struct task *task; (task = endpoint->lent.head) && link->operations->taken(link, task->lent);) {
        endpoint->lent.head = task->next;
        task_end(track, task);
        any = true;
    }
    return any;
}

/* Moves the head of a queue; returns 1 if it moved, 0 if not, -1 if the link is broken. */
static int queue_move(struct track *track, struct task_queue *queue, struct endpoint *endpoint)
{
    struct task *task = queue->head;
    size_t open = task ? task_open(task) : 0;
    if (!open)
        return 0;
    if (endpoint && !endpoint->link)
        endpoint->link = track->lookup(track->owner, endpoint->peer, track->channel);
    struct link *link = endpoint ? endpoint->link : NULL;
    if (endpoint && (!link || (task->step->kind != STEP_SEND && link_is_empty(link))))
        return 0;
    ssize_t moved = task_move(task, link, open);
    if (moved <= 0)
        return moved < 0 ? -1 : 0;
    task->done += (size_t)moved;
    if (task_is_done(task))
        task_finish(track, queue, endpoint);
    return 1;
}

static bool endpoint_move(struct track *track, struct endpoint *endpoint, struct task_queue *queue)
{
    if (endpoint->broken)
        return false;
    int moved = queue_move(track, queue, endpoint);
    endpoint->broken = moved < 0;
    return moved > 0;
}

static bool queue_waits(const struct endpoint *endpoint, const struct task_queue *queue)
{
    return !endpoint->broken && queue->head && task_open(queue->head) > 0;
}

/* Sets the events that wake this rank when it sleeps. Endpoints without steps leave the list and cost later
 * turns nothing. */
static void await_events(struct track *track)
{
    struct endpoint **place = &track->busy;
    for (struct endpoint *endpoint; (endpoint = *place);) {
        bool reads = queue_waits(endpoint, &endpoint->receives);
        bool writes = queue_waits(endpoint, &endpoint->sends);
        /* A gate may have opened in this turn, which may be the last one before this rank sleeps. */
        if (!endpoint->link && (reads || writes))
            endpoint->link = track->lookup(track->owner, endpoint->peer, track->channel);
        if (endpoint->link) {
            endpoint->link->want_read = reads;
            endpoint->link->want_write = writes;
            endpoint->link->want_taken = endpoint->lent.head ? endpoint->lent.head->lent : 0;
            link_await(endpoint->link);
        }
        endpoint->busy = endpoint->receives.head || endpoint->sends.head || endpoint->lent.head;
        if (endpoint->busy)
            place = &endpoint->next_busy;
        else
            *place = endpoint->next_busy;
    }
    track->busy_end = place;
}

bool track_progress(struct track *track)
{
    track_plan(track);
    bool moved = false;
    struct endpoint *endpoint;
    for (endpoint = track->busy; endpoint; endpoint = endpoint->next_busy)
        moved |= endpoint_move(track, endpoint, &endpoint->receives);
    moved |= queue_move(track, &track->local, NULL) > 0;
    for (endpoint = track->busy; endpoint; endpoint = endpoint->next_busy)
        moved |= endpoint_move(track, endpoint, &endpoint->sends);
    for (endpoint = track->busy; endpoint; endpoint = endpoint->next_busy)
        moved |= lent_finish(track, endpoint);
    moved |= leaving_finish(track);
    track_plan(track);
    await_events(track);
    return moved;
}

/* ---- the end -------------------------------------------------------------------------------------- */

void track_abort(struct track *track, const hvd_status *cause)
{
    track->stopped = true;
    track->planner = NULL;
    track->local.head = NULL;
    for (struct endpoint *endpoint = track->busy; endpoint; endpoint = endpoint->next_busy) {
        struct link *link = endpoint->link;
        if (link && link->lent && !link->operations->taken(link, link->lent))
            link->operations->revoke(link);
        endpoint->sends.head = endpoint->receives.head = endpoint->lent.head = NULL;
    }
    await_events(track);
    while (track->running) {
        status_copy(&track->running->collective->status, cause);
        run_finish(track, track->running);
    }
    for (struct collective *collective; (collective = collective_queue_pop(&track->waiting)) ||
                                        (collective = collective_queue_pop(&track->leaving));) {
        status_copy(&collective->status, cause);
        collective_finish(track, collective);
    }
}

bool track_idle(const struct track *track)
{
    return !track->running && !track->waiting.head && !track->leaving.head;
}

/* A planner that has not planned its first phase waits for its input. */
bool track_awaits_device(const struct track *track)
{
    return track->leaving.head || (track->planner && track->planner->phase == 0);
}

bool track_is_ready(const struct track *track)
{
    return (track->local.head && task_open(track->local.head) > 0) || track_awaits_device(track);
}

void track_free(struct track *track)
{
    while (track->spare) {
        struct run *run = track->spare;
        track->spare = run->next;
        schedule_free(&run->schedule);
        pages_free(run->tasks, (size_t)run->capacity * sizeof *run->tasks);
        free(run);
    }
    while (track->endpoints) {
        struct endpoint *endpoint = track->endpoints;
        track->endpoints = endpoint->next;
        free(endpoint);
    }
    free(track);
}
