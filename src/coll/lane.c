/* lane.c - see lane.h. A job's steps are queued phase by phase, in the order of the schedule, at the link
 * they need; only the head of a queue moves. As jobs are planned in one order on all ranks, both ends of a
 * link agree on which bytes come next. */
#include "coll/lane.h"

#include "base/status.h"
#include "base/types.h"

#include <stdlib.h>

/* ---- queues --------------------------------------------------------------------------------------- */

void job_queue_push(struct job_queue *queue, struct job *job)
{
    job->next = NULL;
    if (queue->head)
        queue->tail->next = job;
    else
        queue->head = job;
    queue->tail = job;
}

struct job *job_queue_pop(struct job_queue *queue)
{
    struct job *job = queue->head;
    if (job)
        queue->head = job->next;
    return job;
}

static void task_queue_push(struct task_queue *queue, struct task *task)
{
    task->next = NULL;
    if (queue->head)
        queue->tail->next = task;
    else
        queue->head = task;
    queue->tail = task;
}

/* ---- jobs ----------------------------------------------------------------------------------------- */

static struct run *run_start(struct lane *lane, struct job *job)
{
    struct run *run = lane->spare;
    if (run)
        lane->spare = run->next;
    else if (!(run = calloc(1, sizeof *run)))
        return NULL;
    run_begin(run, job);
    run->previous = NULL;
    run->next = lane->running;
    if (run->next)
        run->next->previous = run;
    lane->running = run;
    return run;
}

static void job_finish(struct lane *lane, struct job *job)
{
    free(job->scratch);
    job->scratch = NULL;
    job_queue_push(lane->finished, job);
}

static void run_finish(struct lane *lane, struct run *run)
{
    if (run->previous)
        run->previous->next = run->next;
    else
        lane->running = run->next;
    if (run->next)
        run->next->previous = run->previous;
    job_finish(lane, run->job);
    run->next = lane->spare;
    lane->spare = run;
}

static struct endpoint *endpoint_add(struct lane *lane, const struct job *job, int peer, hvd_status *status)
{
    struct link *link = lane->lookup(lane->owner, peer, lane->channel);
    if (!link) {
        status_set(status, HVD_SYSTEM,
                   "rank %d has no link to rank %d on channel %d, which algorithm %s needs", job->rank, peer,
                   lane->channel, job->algorithm->name);
        return NULL;
    }
    if (lane->count == lane->capacity) {
        int capacity = lane->capacity ? lane->capacity * 2 : 8;
        struct endpoint *endpoints = realloc(lane->endpoints, (size_t)capacity * sizeof *endpoints);
        if (!endpoints) {
            status_set(status, HVD_OUT_OF_MEMORY, "no memory for the list of links of channel %d",
                       lane->channel);
            return NULL;
        }
        lane->endpoints = endpoints;
        lane->capacity = capacity;
    }
    struct endpoint *endpoint = &lane->endpoints[lane->count++];
    *endpoint = (struct endpoint){.link = link, .peer = peer};
    return endpoint;
}

static struct endpoint *endpoint_find(const struct lane *lane, int peer)
{
    for (int i = 0; i < lane->count; i++)
        if (lane->endpoints[i].peer == peer)
            return &lane->endpoints[i];
    return NULL;
}

/* A step without bytes is done already, here and at the peer. */
static bool step_needs_link(const struct step *step)
{
    return step->length > 0 && step->kind != STEP_COPY;
}

/* Finds all links first, so that nothing has to be taken back when one is missing. */
static hvd_code endpoints_reserve(struct lane *lane, const struct schedule *schedule, struct job *job)
{
    for (int i = 0; i < schedule->count; i++) {
        const struct step *step = &schedule->steps[i];
        if (step_needs_link(step) && !endpoint_find(lane, step->peer) &&
            !endpoint_add(lane, job, step->peer, &job->status))
            return job->status.code;
    }
    return HVD_OK;
}

static void task_submit(struct lane *lane, struct task *task)
{
    const struct step *step = task->step;
    if (step->length == 0)
        return;
    task->run->left++;
    if (step->kind == STEP_COPY) {
        task_queue_push(&lane->copies, task);
        return;
    }
    struct endpoint *endpoint = endpoint_find(lane, step->peer);
    task_queue_push(step->kind == STEP_SEND ? &endpoint->sends : &endpoint->receives, task);
}

static bool tasks_reserve(struct run *run, int count)
{
    if (count <= run->capacity)
        return true;
    struct task *tasks = realloc(run->tasks, (size_t)count * sizeof *tasks);
    if (!tasks)
        return false;
    run->tasks = tasks;
    run->capacity = count;
    return true;
}

/* Plans the next phase and queues its steps. */
static hvd_code run_plan(struct lane *lane, struct run *run)
{
    struct job *job = run->job;
    struct schedule *schedule = &run->schedule;
    schedule_clear(schedule);
    hvd_code code = job->algorithm->plan(job, run->phase++, schedule, &run->more, &job->status);
    if (code != HVD_OK)
        return code;
    if (schedule->failed || !tasks_reserve(run, schedule->count))
        return status_set(&job->status, HVD_OUT_OF_MEMORY, "no memory for the steps of %s %s on %d ranks",
                          operation_name(job->operation), job->algorithm->name, job->size);
    code = endpoints_reserve(lane, schedule, job);
    for (int i = 0; i < schedule->count && code == HVD_OK; i++) {
        run->tasks[i] = (struct task){.run = run, .step = &schedule->steps[i]};
        task_submit(lane, &run->tasks[i]);
    }
    return code;
}

/* A job that fails while it is planned has no steps in any queue: those of its earlier phases are done. */
static void job_fail(struct lane *lane, struct run *run)
{
    lane->stopped = true;
    lane->planner = NULL;
    run_finish(lane, run);
}

static bool planner_next(struct lane *lane)
{
    struct job *job = lane->stopped ? NULL : job_queue_pop(&lane->waiting);
    if (!job)
        return false;
    status_ok(&job->status);
    lane->planner = run_start(lane, job);
    if (!lane->planner) {
        status_set(&job->status, HVD_OUT_OF_MEMORY, "no memory to run %s", operation_name(job->operation));
        lane->stopped = true;
        job_finish(lane, job);
    }
    return lane->planner != NULL;
}

/* Plans whatever can be planned: the planner's next phase once the one before is done, then the next job. */
static void lane_plan(struct lane *lane)
{
    while (lane->planner || planner_next(lane)) {
        struct run *run = lane->planner;
        if (run->left)
            return;
        if (run_plan(lane, run) != HVD_OK) {
            job_fail(lane, run);
        } else if (!run->more) {
            lane->planner = NULL;
            if (!run->left)
                run_finish(lane, run);
        }
    }
}

/* ---- moving bytes --------------------------------------------------------------------------------- */

static void task_finish(struct lane *lane, struct task_queue *queue, struct link *link)
{
    struct task *task = queue->head;
    struct run *run = task->run;
    queue->head = task->next;
    if (task->step->kind == STEP_SEND)
        link->operations->end_send(link);
    else if (link)
        link->operations->end_receive(link);
    run->left--;
    if (!run->left && !run->more)
        run_finish(lane, run);
}

/* Moves the head of a queue; 1 when it moved, 0 when not, -1 when the link is broken. */
static int queue_move(struct lane *lane, struct task_queue *queue, struct link *link)
{
    struct task *task = queue->head;
    size_t open = task ? task_open(task) : 0;
    if (!open)
        return 0;
    ssize_t moved = task_move(task, link, open);
    if (moved <= 0)
        return moved < 0 ? -1 : 0;
    task->done += (size_t)moved;
    if (task->done == task->step->length)
        task_finish(lane, queue, link);
    return 1;
}

static bool endpoint_move(struct lane *lane, struct endpoint *endpoint, struct task_queue *queue)
{
    if (endpoint->broken)
        return false;
    int moved = queue_move(lane, queue, endpoint->link);
    endpoint->broken = moved < 0;
    return moved > 0;
}

static bool queue_waits(const struct endpoint *endpoint, const struct task_queue *queue)
{
    return !endpoint->broken && queue->head && task_open(queue->head) > 0;
}

bool lane_progress(struct lane *lane)
{
    lane_plan(lane);
    bool moved = false;
    for (int i = 0; i < lane->count; i++)
        moved |= endpoint_move(lane, &lane->endpoints[i], &lane->endpoints[i].receives);
    moved |= queue_move(lane, &lane->copies, NULL) > 0;
    for (int i = 0; i < lane->count; i++)
        moved |= endpoint_move(lane, &lane->endpoints[i], &lane->endpoints[i].sends);
    lane_plan(lane);
    for (int i = 0; i < lane->count; i++) {
        struct endpoint *endpoint = &lane->endpoints[i];
        endpoint->link->want_read = queue_waits(endpoint, &endpoint->receives);
        endpoint->link->want_write = queue_waits(endpoint, &endpoint->sends);
    }
    return moved;
}

/* ---- the end -------------------------------------------------------------------------------------- */

void lane_abort(struct lane *lane, const hvd_status *cause)
{
    lane->stopped = true;
    lane->planner = NULL;
    lane->copies.head = NULL;
    for (int i = 0; i < lane->count; i++) {
        struct endpoint *endpoint = &lane->endpoints[i];
        endpoint->sends.head = endpoint->receives.head = NULL;
    }
    while (lane->running) {
        status_copy(&lane->running->job->status, cause);
        run_finish(lane, lane->running);
    }
    for (struct job *job; (job = job_queue_pop(&lane->waiting));) {
        status_copy(&job->status, cause);
        job_finish(lane, job);
    }
}

bool lane_idle(const struct lane *lane)
{
    return !lane->running && !lane->waiting.head;
}

void lane_free(struct lane *lane)
{
    while (lane->spare) {
        struct run *run = lane->spare;
        lane->spare = run->next;
        schedule_free(&run->schedule);
        free(run->tasks);
        free(run);
    }
    free(lane->endpoints);
    free(lane);
}
