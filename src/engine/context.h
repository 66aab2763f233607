/* context.h - a context: this rank in one epoch of a job, and its counters. Each group of members names the
 * threads that may use it. */
#ifndef HVD_ENGINE_CONTEXT_H
#define HVD_ENGINE_CONTEXT_H

#include "base/clock.h"
#include "base/map.h"
#include "base/pool.h"
#include "base/settings.h"
#include "base/thread.h"
#include "base/types.h"
#include "engine/drive.h"
#include "engine/nonfinite.h"
#include "engine/overlap.h"
#include "engine/sets.h"
#include "engine/stacks.h"
#include "engine/steps.h"
#include "engine/turns.h"
#include "horovod.h"
#include "watch/page.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct backend;
struct comm;
struct hvd_handle;
struct memory_ops;
struct rendezvous_client;
struct timeline;
struct tuning;

/* ---- counters --------------------------------------------------------------------------------------------
 * They count what this rank has done, per process set and operation, in its page. The holder of the progress
 * lock adds; any thread reads, and adds its waits. */

/* The counters of one process set. Removed sets keep theirs, so that totals never shrink. */
struct set_counters {
    int process_set;
    struct page_set *place; /* NULL: there was none left in the page */
    struct operation_counters *operations;
    struct set_counters *next;
    struct operation_counters own[]; /* without a place */
};

struct counters {
    pthread_mutex_t lock; /* protects the list; its elements never move */
    struct set_counters *first, *last;
};

void counters_init(struct counters *counters);
void counters_fini(struct counters *counters);

/* Returns the counters of a process set, and makes them if there are none yet. NULL: out of memory. */
struct set_counters *counters_of(struct hvd_context *context, int process_set);

/* This rank is a member of the set, or (size 0) no longer. */
static inline void counters_set_size(struct set_counters *set, int size)
{
    if (set->place)
        atomic_store_explicit(&set->place->size, size, memory_order_relaxed);
}

/* Under the progress lock: no other thread adds to this counter. */
static inline void counter_add(atomic_uint_fast64_t *counter, uint64_t amount)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + amount, memory_order_relaxed);
}

/* ---- context ---------------------------------------------------------------------------------------------
 * The state of one rank of one job; only files of engine/ use it. Members are grouped by the threads that may
 * use them.
 *
 * The holder of the progress lock is a waiting caller or the progress thread. drive.c says what each thread
 * must do so that no wake-up is lost. */

struct hvd_context {
    /* Any thread: constant once hvd_init has returned. */
    struct settings settings;
    const struct backend *const *backends;
    struct interrupt interrupt; /* ends blocking calls other than hvd_wait, which has a deadline */
    hvd_placement placement;
    struct timeline *timeline;   /* NULL: not enabled, or not rank 0 */
    bool planned;                /* the variables name the rank, and its slot may have an assignment */
    uint32_t generation;         /* see rendezvous_enter */
    struct atfork_handler watch; /* sets `forked` */

    /* Any thread: these are atomic, or have a lock of their own. */
    atomic_int references; /* one of the owner, and one per handle not yet freed */
    atomic_bool forked;    /* this is a child's copy */
    atomic_int claim;      /* the descriptor that holds the rank, see claim.h; or -1 */
    atomic_int device_id;  /* of the first tensor on a device other than the CPU; -1: there was none */
    struct counters counters;
    struct page_writer page; /* what other processes may know of this rank */
    struct steps steps;
    struct stacks stacks;
    struct sets sets;

    /* Under handles_lock. */
    pthread_mutex_t handles_lock;
    struct pool pool; /* memory of the handles */
    struct map names; /* names of the handles in flight */

    /* Under rendezvous_lock after hvd_init. */
    pthread_mutex_t rendezvous_lock;
    struct rendezvous_client *rendezvous; /* open while this rank is in the epoch; NULL: a job of one rank */
    bool has_raised;                      /* the record of an exception was published */

    /* Any thread adds work here; the holder of the progress lock removes it: invariant 3 of drive.c. */
    _Atomic(struct hvd_handle *) queue; /* submitted, newest first */
    _Atomic(struct comm *) added;       /* process sets not yet in the list of communicators */
    atomic_bool returned;               /* a caller has run a worker's collective */
    atomic_bool leaving;                /* hvd_shutdown was called */

    /* Written by the holder of the progress lock, read by any thread. */
    atomic_uint closed; /* HANDLE_DONE: no rank needs this one any longer; a futex word */
    atomic_bool failed; /* `failure` is valid */
    hvd_status failure; /* why no operation runs any longer; written once, before `failed` */

    struct drive drive;

    /* Under the progress lock. */
    int64_t now;                       /* see context_now; 0: the clock was not read in this turn */
    struct comm *world;                /* all ranks; the first in the list of communicators */
    struct comm *shrinking;            /* suspended communicators that hold memory, the longest first */
    struct tuning *tuning;             /* NULL: not enabled, finished, or not rank 0 */
    struct overlaps overlaps;          /* memory of the operations in flight */
    struct hvd_handle *released;       /* no longer held back, yet to be handed over again */
    struct hvd_handle *joins;          /* joins that wait for requests of this rank that are held back */
    struct hvd_handle *decided;        /* decided batches that add or remove process sets, newest first */
    struct hvd_handle *finished_calls; /* done; their `done` functions are yet to be called */
    int64_t next_heartbeat;            /* when peers are checked next; 0: this rank does not wait */
    int last_set;                      /* the highest id that a process set was given */
    struct nonfinite nonfinite;        /* numbers that are not finite */
    struct turns order;                /* the turns of this rank's process sets */
    bool closings;                     /* a communicator has closed since the last turn */
    bool leave_said;                   /* the coordinators know that this rank leaves */
    bool cause_sent;                   /* all peers were sent the cause that ends the job */
    hvd_status fault;                  /* the first cause that a callback found; code HVD_OK: none */
};

void context_retain(struct hvd_context *context);
void context_release(struct hvd_context *context);

/* Any thread. A tensor on this device is submitted: the first one decides which device is the rank's own, on
 * which it works when it has joined. */
void context_use_device(struct hvd_context *context, int32_t device_id);

/* Returns the device of the rank; before its first tensor on one the device whose number is the local rank.
 */
int32_t context_device(const struct hvd_context *context, const struct memory_ops *memory);

/* Returns HVD_FORKED in a child of the process that opened the context. */
hvd_code context_check_process(const struct hvd_context *context, hvd_status *status);

/* Returns true if the calling thread may use state that is under the progress lock: it holds the lock, or no
 * progress thread runs, because this thread opens or closes the context. For assertions. */
static inline bool context_is_held(const struct hvd_context *context)
{
#ifdef NDEBUG
    (void)context;
    return true;
#else
    return !context->drive.thread_runs || drive_holder(&context->drive) == (uintptr_t)pthread_self();
#endif
}

/* Returns the time of this turn of progress, for which the clock is read once. Under the progress lock. */
static inline int64_t context_now(struct hvd_context *context)
{
    if (!context->now)
        context->now = clock_now();
    return context->now;
}

/* As status_no_memory, for a cause that other ranks receive: it names this rank. */
void context_no_memory(const struct hvd_context *context, hvd_status *status);

/* Records why no operation runs any longer; the first cause counts. Under the progress lock. */
void context_fail(struct hvd_context *context, const hvd_status *cause);

/* Records a cause that ends the job at the end of this turn; callbacks of back ends and coordinators use it.
 * The first cause counts. Under the progress lock. */
void context_fault(struct hvd_context *context, const hvd_status *cause);

#endif
