/* context.h - a context: this rank in one epoch of a job, and its counters. */
#ifndef HVD_ENGINE_CONTEXT_H
#define HVD_ENGINE_CONTEXT_H

#include "base/clock.h"
#include "base/map.h"
#include "base/pool.h"
#include "base/settings.h"
#include "base/thread.h"
#include "base/types.h"
#include "engine/overlap.h"
#include "engine/sets.h"
#include "engine/turns.h"
#include "horovod.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct backend;
struct comm;
struct hvd_handle;
struct rendezvous_client;
struct timeline;
struct tuning;

/* ---- counters --------------------------------------------------------------------------------------------
 * What this rank has done, per process set and operation; always on, unlike the events of the
 * timeline. The progress thread and waiting callers add with relaxed atomics, any thread reads. */

struct operation_counters {
    atomic_uint_fast64_t submitted, succeeded, failed, batches, bytes, wait_ns;
};

/* Of one process set. Removed sets keep theirs, so that totals never shrink. */
struct set_counters {
    int process_set;
    struct operation_counters operations[OPERATION_NUMBERS];
    struct set_counters *next;
};

struct counters {
    pthread_mutex_t lock; /* of the list; its elements never move */
    struct set_counters *first, *last;
};

void counters_init(struct counters *counters);
void counters_fini(struct counters *counters);

/* The counters of a process set, made when there are none yet; NULL when memory is out. */
struct set_counters *counters_of(struct counters *counters, int process_set);

static inline void counter_add(atomic_uint_fast64_t *counter, uint64_t amount)
{
    atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

/* ---- context ---------------------------------------------------------------------------------------------
 * What one rank of one job holds; shared by the files of engine/ only.
 *
 * Threads. The holder of the progress lock, a caller that waits or else the progress thread, owns the meshes,
 * the executors, the communicators and the fields marked so. User threads touch only the submission queue,
 * their handles and the atomics. drive.c says what each thread must do so that no wake-up is lost. */

struct hvd_context {
    atomic_int references; /* the owner's and one per handle not yet freed */
    pthread_mutex_t handles_lock;
    struct pool pool; /* of the handles, and */
    struct map names; /* of those in flight; both under the lock */
    struct settings settings;
    const struct backend *const *backends;
    struct interrupt interrupt; /* of blocking calls other than hvd_wait, which has a deadline */
    hvd_placement placement;
    atomic_bool forked; /* this is the child's copy */

    struct counters counters;
    struct timeline
        *timeline; /* NULL: not enabled, or another rank's; constant once a thread makes progress */

    struct tuning *tuning; /* NULL: not enabled, over, or another rank's; under the lock */

    struct rendezvous_client *rendezvous; /* open as long as this rank is in the epoch; NULL: alone */
    pthread_mutex_t rendezvous_lock;      /* held to use the client after hvd_init */
    uint32_t generation;                  /* see rendezvous_enter */

    struct comm *world;           /* all ranks; the first in the list of communicators */
    _Atomic(struct comm *) added; /* process sets not yet in the list of communicators */
    struct comm *shrinking;       /* suspended ones that hold memory, the longest first; under the lock */
    atomic_int claim;             /* the descriptor that holds the rank, see claim.h; or -1 */
    struct sets sets;
    struct turns order; /* of this rank's process sets; under the lock */
    int last_set;       /* the highest id given out; under the lock */

    atomic_uint progress_lock;          /* LOCKED or UNLOCKED, see drive.c; a futex word */
    _Atomic int64_t deadline;           /* when the progress thread wakes though nothing arrives */
    atomic_uint thread_waits;           /* the progress thread sleeps on the lock */
    bool polls_periodically;            /* the progress thread, so that peers need not ring; under the lock */
    bool caller_active;                 /* made progress since the progress thread did; under the lock */
    atomic_int waiters;                 /* callers that wait for the lock; a hint */
    _Atomic(struct hvd_handle *) queue; /* submitted, newest first */
    atomic_bool returned;               /* a caller has run a worker's collective */
    struct hvd_handle *finished_calls;  /* done, `done` function yet to be called */
    struct overlaps overlaps;    /* memory of what is in flight; this and the next two: under the lock */
    struct hvd_handle *decided;  /* batches that add or remove process sets, newest first: see progress.c */
    bool closings;               /* a communicator has closed since progress.c has looked; under the lock */
    struct hvd_handle *released; /* held back for one that does so no more */
    struct hvd_handle *joins;    /* held back for requests of this rank that still are */
    int64_t next_heartbeat;      /* when peers are checked next; 0: this rank does not wait; under the lock */
    unsigned turns;              /* of progress, to look at the kernel only now and then */
    int64_t caller_spin;         /* ns of polling before yielding */
    int same_core_waits;         /* under the lock: see drive.c */

    atomic_bool leaving; /* hvd_shutdown was called */
    bool leave_said;     /* to the coordinator; under the lock */
    atomic_uint closed;  /* no rank needs this one any more; a futex word */
    bool cause_sent;     /* to all peers; under the lock */
    hvd_status fault;    /* code not HVD_OK: what a callback found; under the lock */
    atomic_bool failed;  /* `failure` is valid */
    hvd_status failure;  /* why nothing runs any more; written once, before `failed` */
    atomic_bool stop;    /* the progress thread has to end */
    bool thread_running; /* `progress_thread` is valid */
    pthread_t progress_thread;

    struct atfork_handler watch; /* sets `forked` */
};

void context_retain(struct hvd_context *context);
void context_release(struct hvd_context *context);

/* HVD_FORKED in a child of the process that opened the context. */
hvd_code context_check_process(const struct hvd_context *context, hvd_status *status);

/* Records why nothing runs any more, from here on for every caller; the first cause counts. Under the
 * progress lock. */
void context_fail(struct hvd_context *context, const hvd_status *cause);

/* Notes a cause that ends the job at the end of this turn, for callbacks out of the executor or a
 * coordinator. The first one counts. Under the progress lock. */
void context_fault(struct hvd_context *context, const hvd_status *cause);

#endif
