/* worker.c - runs blocking collectives of one row, one at a time, in a claiming thread or in the worker's own
 * thread. `under_way` belongs to the progress lock, the other changing members to `lock`; `run` is called
 * without either. `done` is called only under the progress lock, from worker_progress and worker_abort. */
#include "backend/worker.h"

#include "base/floats.h"
#include "base/platform_poller.h"
#include "base/status.h"
#include "base/thread.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Seconds for a running collective to end by itself after the job has failed. */
#define ABORT_GRACE 2

struct worker {
    const struct backend *backend;
    void *state;
    int rank; /* of the job */
    int descriptor;
    int under_way;    /* collectives without a report yet; under the progress lock */
    atomic_bool news; /* a hint: `ended` has collectives */
    pthread_t thread;
    pthread_mutex_t lock; /* protects all following members */
    pthread_cond_t changed;
    struct collective_queue todo;
    struct collective_queue ended; /* with their status */
    struct collective *current;
    bool delegated; /* the worker's thread runs `todo`; no caller does */
    bool announced; /* `descriptor` is readable */
    bool ending;    /* a thread waits for the end of `current` */
    bool stops;
    struct worker *next; /* of the process set */
};

/* Makes the first collective of `todo` the current one. Under the lock, while none runs. */
static void start_next(struct worker *worker)
{
    worker->current = collective_queue_pop(&worker->todo);
    worker->delegated &= worker->todo.head != NULL;
}

static void run_current(struct worker *worker, bool announce)
{
    struct collective *collective = worker->current; /* only this thread uses it */
    status_ok(&collective->status);
    uint64_t mode = floats_begin();
    worker->backend->run(worker->state, collective, &collective->status);
    floats_end(mode);
    pthread_mutex_lock(&worker->lock);
    collective_queue_push(&worker->ended, collective);
    worker->current = NULL;
    if (announce && !worker->announced)
        platform_event_set(worker->descriptor);
    worker->announced |= announce;
    atomic_store(&worker->news, true);
    if (worker->delegated || worker->ending)
        pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    pthread_mutex_lock(&worker->lock);
    while (!worker->stops) {
        if (!worker->delegated || worker->current) {
            pthread_cond_wait(&worker->changed, &worker->lock);
            continue;
        }
        start_next(worker);
        pthread_mutex_unlock(&worker->lock);
        run_current(worker, true);
        pthread_mutex_lock(&worker->lock);
    }
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

static void stop_thread(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    bool stopped = worker->stops;
    worker->stops = true;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
    if (!stopped)
        pthread_join(worker->thread, NULL);
}

static void worker_free(struct worker *worker)
{
    pthread_cond_destroy(&worker->changed);
    pthread_mutex_destroy(&worker->lock);
    if (worker->descriptor >= 0)
        close(worker->descriptor);
    free(worker);
}

hvd_code worker_open(const struct backend *backend, void *state, int rank, struct worker **first,
                     struct worker **opened, int *descriptor, hvd_status *status)
{
    struct worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return status_no_memory(status);
    *worker = (struct worker){.backend = backend, .state = state, .rank = rank, .next = *first};
    pthread_mutex_init(&worker->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&worker->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    worker->descriptor = platform_event_create();
    int error = worker->descriptor < 0 ? errno : thread_start(&worker->thread, work, worker);
    if (error) {
        worker_free(worker);
        return status_set_errno(status, error, "rank %d can't start the thread of back end %s", rank,
                                backend->name);
    }
    *descriptor = worker->descriptor;
    *first = *opened = worker;
    return HVD_OK;
}

void worker_close(struct worker *worker)
{
    stop_thread(worker);
    worker_free(worker);
}

void worker_start(struct worker *worker, struct collective *collective)
{
    if (collective->phased)
        collective->phased(collective, 0);
    worker->under_way++;
    pthread_mutex_lock(&worker->lock);
    collective_queue_push(&worker->todo, collective);
    pthread_mutex_unlock(&worker->lock);
}

struct worker *worker_claim(struct worker *first)
{
    bool claimed = false;
    for (struct worker *worker = first; worker; worker = worker->next) {
        if (!worker->under_way)
            continue;
        pthread_mutex_lock(&worker->lock);
        claimed = worker->todo.head && !worker->current;
        if (claimed)
            start_next(worker);
        pthread_mutex_unlock(&worker->lock);
        if (claimed)
            return worker;
    }
    return NULL;
}

void worker_run(struct worker *worker)
{
    run_current(worker, false);
}

void worker_delegate(struct worker *first)
{
    for (struct worker *worker = first; worker; worker = worker->next) {
        if (!worker->under_way)
            continue;
        pthread_mutex_lock(&worker->lock);
        if (worker->todo.head && !worker->delegated) {
            worker->delegated = true;
            pthread_cond_broadcast(&worker->changed);
        }
        pthread_mutex_unlock(&worker->lock);
    }
}

static void report(struct worker *worker, struct collective_queue *queue, const hvd_status *cause)
{
    for (struct collective *collective; (collective = collective_queue_pop(queue));) {
        hvd_status status = cause ? *cause : collective->status; /* done may free the collective */
        worker->under_way--;
        collective->done(collective, &status);
    }
}

enum backend_progress worker_progress(struct worker *worker, bool *moved)
{
    if (atomic_load_explicit(&worker->news, memory_order_relaxed)) {
        pthread_mutex_lock(&worker->lock);
        struct collective_queue ended = worker->ended;
        worker->ended.head = NULL;
        atomic_store(&worker->news, false);
        if (worker->announced)
            platform_event_clear(worker->descriptor);
        worker->announced = false;
        pthread_mutex_unlock(&worker->lock);
        *moved |= ended.head != NULL;
        report(worker, &ended, NULL);
    }
    return worker->under_way ? BACKEND_PENDING : BACKEND_DONE;
}

/* Waits, under the lock, for the end of the current collective, at most ABORT_GRACE; after that the row kills
 * it, and the function returns true. */
static bool end_current(struct worker *worker, const hvd_status *cause)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ABORT_GRACE;
    int expired = 0;
    worker->ending = true;
    while (worker->current && !expired)
        expired = pthread_cond_timedwait(&worker->changed, &worker->lock, &until);
    if (!worker->current)
        return false;
    log_error(worker->rank, "%s; the %s that %s is in did not end within %d s and can't be cancelled",
              cause->text, hvd_operation_name(worker->current->operation), worker->backend->name,
              ABORT_GRACE);
    worker->backend->kill(worker->state);
    while (worker->current)
        pthread_cond_wait(&worker->changed, &worker->lock);
    return true;
}

void worker_abort(struct worker *worker, const hvd_status *cause)
{
    worker->backend->abort(worker->state, cause);
    pthread_mutex_lock(&worker->lock);
    bool killed = end_current(worker, cause);
    pthread_mutex_unlock(&worker->lock);
    stop_thread(worker);
    report(worker, &worker->ended, killed ? cause : NULL);
    report(worker, &worker->todo, cause);
}
