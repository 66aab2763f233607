/* context.h - a context: this rank in one epoch of a job, and its counters. */
#ifndef HVD_ENGINE_CONTEXT_H
#define HVD_ENGINE_CONTEXT_H

#include "base/clock.h"
#include "base/map.h"
#include "base/pool.h"
#include "base/settings.h"
#include "base/thread.h"
#include "base/types.h"
#include "engine/drive.h"
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
 * What one rank of one job holds; shared by the files of engine/ only. Members are grouped by who may touch
 * them.
 *
 * The holder of the progress lock is a caller that waits, or else the progress thread. drive.c says what each
 * thread must do so that no wake-up is lost. */

struct hvd_context {
    /* Constant from the end of hvd_init on; any thread. */
    struct settings settings;
    const struct backend *const *backends;
    struct interrupt interrupt; /* of blocking calls other than hvd_wait, which has a deadline */
    hvd_placement placement;
    struct timeline *timeline;   /* NULL: not enabled, or another rank's */
    uint32_t generation;         /* see rendezvous_enter */
    struct atfork_handler watch; /* sets `forked` */

    /* Any thread: atomic, or with a lock of their own. */
    atomic_int references; /* the owner's and one per handle not yet freed */
    atomic_bool forked;    /* this is the child's copy */
    atomic_int claim;      /* the descriptor that holds the rank, see claim.h; or -1 */
    struct counters counters;
    struct sets sets;

    /* Under handles_lock. */
    pthread_mutex_t handles_lock;
    struct pool pool; /* memory of the handles */
    struct map names; /* of the handles in flight */

    /* Under rendezvous_lock after hvd_init. */
    pthread_mutex_t rendezvous_lock;
    struct rendezvous_client *rendezvous; /* open as long as this rank is in the epoch; NULL: alone */

    /* Work that any thread adds and the holder of the progress lock takes: invariant 3 of drive.c. */
    _Atomic(struct hvd_handle *) queue; /* submitted, newest first */
    _Atomic(struct comm *) added;       /* process sets not yet in the list of communicators */
    atomic_bool returned;               /* a caller has run a worker's collective */
    atomic_bool leaving;                /* hvd_shutdown was called */

    /* Written by the holder of the progress lock, read by any thread. */
    atomic_uint closed; /* HANDLE_DONE: no rank needs this one any more; a futex word */
    atomic_bool failed; /* `failure` is valid */
    hvd_status failure; /* why nothing runs any more; written once, before `failed` */

    struct drive drive;

    /* Under the progress lock. */
    struct comm *world;                /* all ranks; the first in the list of communicators */
    struct comm *shrinking;            /* suspended ones that hold memory, the longest first */
    struct tuning *tuning;             /* NULL: not enabled, over, or another rank's */
    struct overlaps overlaps;          /* memory of what is in flight */
    struct hvd_handle *released;       /* were held back for a request that no longer holds them */
    struct hvd_handle *joins;          /* held back for requests of this rank that still are */
    struct hvd_handle *decided;        /* decided batches that add or remove process sets, newest first */
    struct hvd_handle *finished_calls; /* done, `done` function yet to be called */
    int64_t next_heartbeat;            /* when peers are checked next; 0: this rank does not wait */
    int last_set;                      /* the highest id of a process set given out */
    struct turns order;                /* of this rank's process sets */
    bool closings;                     /* a communicator has closed since the last turn */
    bool leave_said;                   /* to the coordinators */
    bool cause_sent;                   /* to all peers */
    hvd_status fault;                  /* code not HVD_OK: what a callback found */
};

void context_retain(struct hvd_context *context);
void context_release(struct hvd_context *context);

/* HVD_FORKED in a child of the process that opened the context. */
hvd_code context_check_process(const struct hvd_context *context, hvd_status *status);

/* Whether the calling thread may touch what is under the progress lock: it holds the lock, or no progress
 * thread runs, so that this thread opens or closes the context. For assertions. */
static inline bool context_is_held(const struct hvd_context *context)
{
#ifdef NDEBUG
    (void)context;
    return true;
#else
    return !context->drive.thread_runs || drive_holder(&context->drive) == (uintptr_t)pthread_self();
#endif
}

/* As status_no_memory, for a cause that other ranks receive: it names this rank. */
void context_no_memory(const struct hvd_context *context, hvd_status *status);

/* Records for every caller why no operation runs any longer; the first cause counts. Under the progress lock.
 */
void context_fail(struct hvd_context *context, const hvd_status *cause);

/* Notes a cause that ends the job at the end of this turn, for callbacks out of the executor or a
 * coordinator. The first one counts. Under the progress lock. */
void context_fault(struct hvd_context *context, const hvd_status *cause);

#endif
