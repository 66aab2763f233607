/* drive.h - which thread makes progress, and how threads wait; drive.c has the design. Any thread. */
#ifndef HVD_ENGINE_DRIVE_H
#define HVD_ENGINE_DRIVE_H

#include "horovod.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The part of a context that belongs to drive.c. */
struct drive {
    atomic_uint lock;         /* the progress lock: UNLOCKED or LOCKED; a futex word */
    atomic_uint thread_waits; /* the progress thread sleeps on the lock */
    _Atomic int64_t deadline; /* when the progress thread wakes even if nothing arrives */
    atomic_int waiters;       /* callers that wait for the lock; a hint */
    atomic_bool stop;         /* the progress thread must end */
    bool thread_runs;         /* `thread` is valid; changes only while no other thread uses the context */
    pthread_t thread;         /* the progress thread */
    int64_t caller_spin;      /* ns for which a caller polls before it yields; constant */
#ifndef NDEBUG
    atomic_uintptr_t holder; /* pthread_self of the thread that has the lock; 0: none has */
#endif

    /* Under the progress lock. */
    bool polls_periodically; /* the progress thread does, so peers need not wake it */
    bool caller_active;      /* a caller made progress since the progress thread did */
    unsigned turns;          /* of progress: the kernel is polled only in some of them */
    struct same_core {
        int waits;     /* consecutive ones on a core shared with a peer */
        int64_t since; /* the time of the first */
    } same_core;
};

#ifndef NDEBUG
static inline uintptr_t drive_holder(const struct drive *drive)
{
    return atomic_load_explicit(&drive->holder, memory_order_relaxed);
}
#endif

/* Call it after adding work: wakes the progress thread unless some thread makes progress. */
void drive_notify(struct hvd_context *context);

/* Waits until `deadline` for `word` to become `value`, and makes progress whenever it has the lock. Returns
 * true if the word has the value. `*idle_since`, if it is 0, is set to the time of the first turn in which
 * nothing moved, if there is one; NULL is fine. */
bool drive_until(struct hvd_context *context, atomic_uint *word, unsigned value, int64_t deadline,
                 int64_t *idle_since);

/* As drive_until for a thread that must not wait: returns at once if another thread makes progress. */
void drive_once(struct hvd_context *context, atomic_uint *word, unsigned value, int64_t deadline);

/* Calls the remaining `done` functions; only once no other thread can make progress. */
void drive_finish_calls(struct hvd_context *context);

hvd_code drive_start_thread(struct hvd_context *context, hvd_status *status);
void drive_stop_thread(struct hvd_context *context); /* fine when it never started */

/* ---- affinity --------------------------------------------------------------------------------------------
 * Binds the progress thread to a core (HOROVOD_THREAD_AFFINITY). */

/* The list has one core per local rank. Returns the core of `local_rank`, or -1 if the list is malformed or
 * has fewer than `local_size` entries. */
int affinity_core(const char *list, int local_rank, int local_size);

/* Binds the calling thread if `list` is not empty. If that fails it logs an error, and the thread runs on any
 * core. */
void affinity_apply(const char *list, int rank, int local_rank, int local_size);

#endif
