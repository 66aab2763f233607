/* copier.c - copies in short pieces, between which it can be ended. A child of fork() has no thread, and must
 * not use the copier. */
#include "snapshot/copier.h"

#include "base/futex.h"
#include "base/status.h"
#include "base/thread.h"

#include <stdlib.h>

#define PIECE_BYTES ((size_t)1 << 20)

/* ---- the thread --------------------------------------------------------------------------------------- */

struct range {
    size_t from, to;
};

/* Copies what the range has of a part that starts at byte `at` of the state; returns false if abandoned. */
static bool copy_part(const struct copier_task *task, struct range range, const hvd_memory *part, size_t at,
                      const atomic_bool *abandoned)
{
    size_t from = at > range.from ? at : range.from, part_end = at + part->bytes;
    size_t end = part_end < range.to ? part_end : range.to;
    while (from < end) {
        size_t length = end - from < PIECE_BYTES ? end - from : PIECE_BYTES;
        if (atomic_load_explicit(abandoned, memory_order_relaxed))
            return false;
        host_copy_write(task->copy, task->buffer, from, (const char *)part->data + (from - at), length);
        from += length;
    }
    return true;
}

hvd_code copier_run(const struct copier_task *task, const atomic_bool *abandoned, hvd_status *status)
{
    struct host_copy_head *head = task->copy->head;
    const size_t own = task->state.bytes, end = own + task->state.own;
    const struct range ranges[] = {{task->from, task->to}, {own, end}};
    for (int i = 0; i < 2; i++)
        TRY(host_copy_reserve(task->copy, task->buffer, end, ranges[i].from, ranges[i].to, status));
    publication_withdraw(&head->publication, task->buffer, task->share);
    size_t at = 0;
    for (int i = 0; i < task->count; at += task->parts[i++].bytes)
        for (int range = 0; range < 2; range++)
            if (!copy_part(task, ranges[range], &task->parts[i], at, abandoned))
                return status_set(status, HVD_INTERRUPTED, "the copy of the state was abandoned");
    publication_publish(&head->publication, task->buffer, task->share, &task->state);
    atomic_fetch_add(&head->news, 1);
    futex_wake_shared(&head->news);
    return status_ok(status);
}

static void *run(void *argument)
{
    struct copier *copier = argument;
    pthread_mutex_lock(&copier->lock);
    for (;;) {
        while (!copier->busy && !copier->ends)
            pthread_cond_wait(&copier->change, &copier->lock);
        if (copier->ends)
            break;
        pthread_mutex_unlock(&copier->lock);
        hvd_status outcome;
        copier_run(&copier->task, &copier->abandoned, &outcome);
        pthread_mutex_lock(&copier->lock);
        free(copier->task.parts);
        copier->outcome = outcome;
        copier->busy = false;
        pthread_cond_broadcast(&copier->change);
    }
    pthread_mutex_unlock(&copier->lock);
    return NULL;
}

/* ---- its callers -------------------------------------------------------------------------------------- */

void copier_init(struct copier *copier)
{
    *copier = (struct copier){.outcome.code = HVD_OK};
    pthread_mutex_init(&copier->lock, NULL);
    pthread_cond_init(&copier->change, NULL);
}

void copier_fini(struct copier *copier)
{
    copier_abandon(copier);
    pthread_mutex_lock(&copier->lock);
    copier->ends = true;
    pthread_cond_broadcast(&copier->change);
    pthread_mutex_unlock(&copier->lock);
    if (copier->runs)
        pthread_join(copier->thread, NULL);
    pthread_cond_destroy(&copier->change);
    pthread_mutex_destroy(&copier->lock);
}

hvd_code copier_start(struct copier *copier, const struct copier_task *task, hvd_status *status)
{
    if (!copier->runs) {
        int error = thread_start_small(&copier->thread, run, copier);
        if (error)
            return status_set_errno(status, error, "can't start the thread that copies the state");
        copier->runs = true;
    }
    pthread_mutex_lock(&copier->lock);
    while (copier->busy) /* a share is published a moment before its task ends */
        pthread_cond_wait(&copier->change, &copier->lock);
    atomic_store(&copier->abandoned, false);
    copier->task = *task;
    copier->busy = true;
    pthread_cond_broadcast(&copier->change);
    pthread_mutex_unlock(&copier->lock);
    return HVD_OK;
}

void copier_finish(struct copier *copier)
{
    pthread_mutex_lock(&copier->lock);
    while (copier->busy)
        pthread_cond_wait(&copier->change, &copier->lock);
    pthread_mutex_unlock(&copier->lock);
}

void copier_abandon(struct copier *copier)
{
    atomic_store(&copier->abandoned, true);
    copier_finish(copier);
}

hvd_code copier_outcome(struct copier *copier, hvd_status *status)
{
    pthread_mutex_lock(&copier->lock);
    hvd_code code = copier->busy ? status_set(status, HVD_IN_PROGRESS, "the state is being copied")
                                 : status_copy(status, &copier->outcome);
    pthread_mutex_unlock(&copier->lock);
    return code;
}
