/* backend.h - what takes whole collectives of a process set: the engine's own executor (the row `host`), MPI,
 * NCCL. A row is a constant of this type in a file of its own, and a line in backends.def.
 *
 * Choice. The root of a process set tries its rows in order for a batch. The first that supports it
 * is the choice, which travels in the decision (base/types.h); every member starts the batch in that row, in
 * the order of decisions.
 *
 * Threads. `open` runs in the thread that opens the process set, beside the one that makes progress, and may
 * block until its deadline. `supports` changes nothing. Everything else is called under the progress lock:
 * `start` and `progress` MUST NOT block; `close` and `abort` may wait for a thread of the row's own, not for
 * other ranks. A row whose library blocks has `run` in their place, which the engine calls without the lock.
 *
 * Sleep. What `progress` returns decides whether the engine's threads may sleep:
 *  - BACKEND_PENDING: a link of the communicator or the row's descriptor becomes readable when there is
 *    something to do. The descriptor is polled from open to close, so no wake-up is lost before a
 *    thread sleeps. It MUST become readable before `progress` can see the end of a collective, and the
 * `progress` that sees it MUST clear it: one left readable keeps the progress thread awake for ever.
 *  - BACKEND_POLL: nothing announces the end. `progress` is called every BACKEND_POLL_PERIOD, or more often.
 *
 * End. A row calls `done` of each collective once, from `progress` or `abort`, never from `start`. A status
 * other than HVD_OK ends the job with that text on all ranks: the other members wait in a collective that
 * will never complete. A row that can detect lost or stopped peers does so itself, within the time
 * limits of the settings; the engine sees only the loss of a connection of its own, and aborts.
 * `abort` ends all collectives of the row before it returns. Nothing may touch their tensors afterwards:
 * where the library can't be cancelled, it worked on copies, which are leaked.
 *
 * Order. Collectives of one process set start in the order of its decisions; one that is `apart` (its memory
 * overlaps that of another) has all rows to itself, and requests of different sets that overlap in memory
 * never run at the same time. Otherwise sets have independent orders, so ranks may start a collective of set
 * A and one of set B in different orders. Libraries whose collectives occupy a device until all members have
 * come (NCCL) deadlock then. Such a row sets `one_order`: then `start` is called in one order over all
 * process sets, that of turns which set 0 gives (engine/turns.h). It costs a collective of another set a way
 * to the root of set 0 and back, unless that set has one rank. A row with `run` has a thread for each set,
 * and can't have one_order. */
#ifndef HVD_BACKEND_BACKEND_H
#define HVD_BACKEND_BACKEND_H

#include "base/clock.h"
#include "base/types.h"
#include "coll/collective.h"
#include "coll/execute.h"

struct rendezvous_client;

/* How a process set gets turns for collectives that need one order over all sets; with the progress lock
 * held.
 */
struct turn_source {
    void (*ask)(void *owner); /* such a collective was decided: on every rank, in the order of decisions */
    bool (*has)(const void *owner); /* the oldest of them that has not started may start */
    void (*use)(void *owner);       /* it starts */
    void *owner;
};

/* ns; long enough to leave the core to the program, short beside what a library costs that has no events. */
#define BACKEND_POLL_PERIOD 50000

/* A process set. Pointers are valid during `open` only, except `ranks`, `settings` and `owner`, which outlive
 * the row. */
struct backend_opening {
    int set, rank, size;             /* id of the process set; this rank in it */
    const int *ranks;                /* [size] of the job, ascending */
    const struct topology *topology; /* of the set; stays as long as the back end */
    const struct settings *settings; /* the job's */
    link_lookup_fn lookup;           /* this rank's links */
    void *owner;                     /* of lookup */
    struct turn_source turns;        /* has NULL: rows of one_order can't be used */
    /* For what the members have to exchange, e.g. a ncclUniqueId. Keys, which begin with the row's name, are
     * this process set's own. NULL: size is 1. */
    struct rendezvous_client *rendezvous;
    int64_t deadline;                  /* clock_now's */
    const struct interrupt *interrupt; /* NULL: none */
};

/* A batch, as the root sees it. A group of several types becomes a collective for each, all in one row. */
struct backend_query {
    hvd_operation operation;
    hvd_reduction reduction;
    uint32_t types;                          /* bits, 1 << hvd_dtype: where it reduces, else bytes */
    int device_type;                         /* hvd_device_type */
    uint64_t bytes;                          /* of one rank; 0 where it differs by rank */
    uint64_t latency_threshold, piece_bytes; /* the settings of that name, as tuned */
};

enum backend_progress {
    BACKEND_DONE,    /* no collective is under way */
    BACKEND_READY,   /* can go on at once: call again before sleeping */
    BACKEND_PENDING, /* waits for a link or the descriptor */
    BACKEND_POLL     /* has to be polled */
};

struct backend {
    const char *name;
    bool one_order; /* see above; a row with `start` only */

    /* Joins the other members; called on all of them, so that they can agree where some lack it. *state: the
     * row's. *descriptor (-1 before): what becomes readable. HVD_OK with *state NULL: it can't be used on
     * this rank, status->text says why. An error fails the process set. */
    hvd_code (*open)(const struct backend_opening *opening, void **state, int *descriptor,
                     hvd_status *status);
    void (*close)(void *state); /* no collective is under way */

    /* Whether it takes such a batch, with the present settings (`deterministic`!); then the numbers of its
     * own in *choice, which are 0 before. */
    bool (*supports)(const void *state, const struct backend_query *query, struct choice *choice);

    /* collective->choice may be any numbers: it came from another process. An error ends the collective. */
    hvd_code (*start)(void *state, struct collective *collective, hvd_status *status);

    /* Called from `start` until it has returned BACKEND_DONE, and once after `abort`. Sets *moved when
     * anything moved or ended: then it is called again soon. */
    enum backend_progress (*progress)(void *state, bool *moved);

    void (*abort)(void *state, const hvd_status *cause);

    /* In place of `start`, `progress` and a descriptor, where the library's calls block: carries out a
     * collective and returns its outcome. Called without the progress lock, of one at a time, in the order of
     * decisions, by any thread: one that waits for the engine anyway, which spares two context switches, or
     * the row's worker. `abort` is called while it may be under way, and ends no collective then. */
    hvd_code (*run)(void *state, struct collective *collective, hvd_status *status);

    /* `run` does not return though the job has failed: makes it return, or ends the process. */
    void (*kill)(void *state);

    /* What the timeline calls it; NULL: the row's name. Any number may come. */
    const char *(*algorithm_name)(unsigned algorithm);
};

/* The rows of backends.def, in order, NULL behind the last. The number of a row travels in decisions. The
 * last row takes every batch and is there on every rank. */
extern const struct backend *const backend_table[];

#define BACKEND(name) extern const struct backend backend_##name;
#include "backend/backends.def"
#undef BACKEND

/* ---- backends --------------------------------------------------------------------------------------------
 * The back ends of one process set: opens the rows, chooses among them, starts collectives in
 * the order of decisions, makes progress in those that have work. Threads as in backend.h. */

struct worker;

struct backend_row {
    const struct backend *backend;
    struct worker *worker;          /* of a row with `run`; else NULL */
    void *state;                    /* NULL: not on this rank, */
    char *missing;                  /* for this reason; NULL: no memory for it */
    int descriptor;                 /* -1: none */
    enum backend_progress progress; /* what it last returned */
};

/* All zero: none, which may be closed. */
struct backends {
    struct backend_row *rows;
    int count;
    int set, rank, root;             /* the process set; this rank's and its root's number in the job */
    struct collective_queue started; /* not yet in a row */
    struct worker *workers;          /* of the rows; NULL: none */
    struct turn_source turns;
    bool apart; /* the last one that went into a row */
    bool aborted;
};

/* On failure `backends` is closed already. */
hvd_code backends_open(struct backends *backends, const struct backend *const *table,
                       const struct backend_opening *opening, hvd_status *status);
void backends_close(struct backends *backends); /* after all collectives are done */

struct choice backends_choose(const struct backends *backends, const struct backend_query *query);

/* For the timeline; the choice may be any numbers. */
const char *backends_algorithm_name(const struct backends *backends, struct choice choice);

/* Queues it; not after an abort. Its `done` is called by backends_progress or backends_abort. */
void backends_start(struct backends *backends, struct collective *collective);

/* Moves what can be moved without waiting; true when anything moved or a collective ended: call it again. */
bool backends_progress(struct backends *backends);

/* Ends all collectives with `cause`. */
void backends_abort(struct backends *backends, const hvd_status *cause);

/* Whether no collective is under way. */
bool backends_idle(const struct backends *backends);

/* Whether there is work now that nothing announces: no thread may sleep. */
bool backends_are_ready(const struct backends *backends);

/* Whether progress is needed every BACKEND_POLL_PERIOD though nothing is announced. */
bool backends_poll(const struct backends *backends);

#endif
