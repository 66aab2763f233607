/* backend.h - the interface of back ends, which run whole collectives of a process set: the engine's own
 * executor (the row `host`), MPI, NCCL. A row is a constant of this type in a file of its own, and a line in
 * backends.def.
 *
 * Choice. The root of a process set tries its rows in order for a batch. The first that supports it
 * is the choice, which is sent in the decision (base/types.h); every member starts the batch in that row, in
 * the order of decisions.
 *
 * Threads. `open` runs in the thread that opens the process set, concurrently with the one that makes
 * progress, and may block until its deadline. `supports` changes nothing. All other functions are called
 * under the progress lock: `start` and `progress` MUST NOT block; `close` and `abort` may wait for a thread
 * of the row's own, not for other ranks. A row whose library blocks has `run` instead, which the engine calls
 * without the lock.
 *
 * Sleep. The value that `progress` returns decides whether the engine's threads may sleep:
 *  - BACKEND_PENDING: a link of the communicator or the row's descriptor becomes readable when there is
 *    something to do. The descriptor is polled from open to close, so no wake-up is lost before a
 *    thread sleeps. It MUST become readable before `progress` can see the end of a collective, and the
 * `progress` that sees it MUST clear it: one left readable keeps the progress thread awake forever.
 *  - BACKEND_POLL: nothing announces the end. `progress` is called every BACKEND_POLL_PERIOD, or more often.
 *
 * End. A row calls `done` of each collective once, from `progress` or `abort`, never from `start`. A status
 * other than HVD_OK ends the job with that text on all ranks, since the other members wait in a collective
 * that will never complete. A row that can detect lost or stopped peers does so itself, within the time
 * limits of the settings; the engine sees only the loss of a connection of its own, and aborts.
 * `abort` ends all collectives of the row before it returns. Nothing may touch their tensors afterwards:
 * a library that can't be cancelled works on copies, which are then leaked.
 *
 * Order. Collectives of one process set start in the order of its decisions; one that is `exclusive` (its
 * memory overlaps that of another) runs alone in all rows, and requests of different sets that overlap in
 * memory never run at the same time. Otherwise sets have independent orders, so ranks may start a collective
 * of set A and one of set B in different orders. Libraries whose collectives occupy a device until all
 * members have arrived (NCCL) then deadlock. Such a row sets `one_order`: `start` is then called in one order
 * over all process sets, the order of turns that set 0 assigns (engine/turns.h). This costs a collective of
 * another set one round trip to the root of set 0, unless that set has one rank. A row with `run` has a
 * thread for each set, and can't have one_order. */
#ifndef HVD_BACKEND_BACKEND_H
#define HVD_BACKEND_BACKEND_H

#include "base/clock.h"
#include "base/types.h"
#include "coll/collective.h"
#include "coll/execute.h"

struct rendezvous_client;

/* The functions by which a process set gets turns for collectives that need one order over all sets. They are
 * called under the progress lock. */
struct turn_source {
    void (*ask)(
        void *owner); /* such a collective was decided; called on every rank, in the order of decisions */
    bool (*has)(const void *owner); /* true: the oldest collective that has not started may start */
    void (*use)(void *owner);       /* it starts */
    void *owner;
};

/* ns; long enough to leave the core to the program, short compared with the cost of a library without events.
 */
#define BACKEND_POLL_PERIOD 50000

/* A process set that is opened. Pointers are valid during `open` only, except `ranks`, `settings` and
 * `owner`, which outlive the row. */
struct backend_opening {
    int set, rank, size;             /* id of the process set; this rank in it */
    const int *ranks;                /* [size]: ranks of the job, ascending */
    const struct topology *topology; /* of the set; outlives the row */
    const struct settings *settings; /* the job's */
    link_lookup_fn lookup;           /* this rank's links */
    void *owner;                     /* of lookup */
    struct turn_source turns;        /* `has` is NULL: rows of one_order can't be used */
    /* For data that the members must exchange, e.g. a ncclUniqueId. Keys, which start with the row's name,
     * belong to this process set only. NULL: size is 1. */
    struct rendezvous_client *rendezvous;
    uint32_t generation;               /* of this life of the job, for a client of the row's own */
    int64_t deadline;                  /* clock_now's */
    const struct interrupt *interrupt; /* NULL: none */
};

/* A batch, as the root sees it. A group of several types becomes one collective for each type, all in one
 * row. */
struct backend_query {
    hvd_operation operation;
    hvd_reduction reduction;
    uint32_t types;                          /* bits, 1 << hvd_dtype; bytes if it does not reduce */
    int device_type;                         /* hvd_device_type */
    uint64_t bytes;                          /* of one rank; 0 if it differs by rank */
    double prescale, postscale;              /* 1 if it does not reduce */
    bool rows_unknown;                       /* allgather, alltoall: collective->rows will be NULL */
    uint64_t latency_threshold, piece_bytes; /* the settings of that name, as tuned */
};

enum backend_progress {
    BACKEND_DONE,    /* no collective is running */
    BACKEND_READY,   /* can continue at once: call again before sleeping */
    BACKEND_PENDING, /* waits for a link or the descriptor */
    BACKEND_POLL     /* must be polled */
};

struct backend {
    const char *name;
    bool one_order; /* see above; only in a row with `start` */

    /* Joins the other members; called on all of them, so that they can agree if some lack the library.
     * *state: the row's state. *descriptor (-1 at the call): the descriptor that becomes readable. HVD_OK
     * with *state NULL: the row can't be used on this rank, and status->text says why. An error fails the
     * process set. */
    hvd_code (*open)(const struct backend_opening *opening, void **state, int *descriptor,
                     hvd_status *status);
    void (*close)(void *state); /* called while no collective runs */

    /* Returns true if the row can run such a batch with the current settings (`deterministic`!), and sets the
     * row's own numbers in *choice, which are 0 at the call; those of the last row if it has `prepare`. */
    bool (*supports)(const void *state, const struct backend_query *query, struct choice *choice);

    /* Optional; called for the next collective of the row before it starts, again and again as long as it
     * returns HVD_IN_PROGRESS; later collectives of the set wait meanwhile. For a library whose set-up needs
     * the device of a tensor. HVD_UNSUPPORTED, which must be the outcome on all members: the last row runs
     * the collective, and `supports` refuses later ones. Another error ends the collective. */
    hvd_code (*prepare)(void *state, const struct collective *collective, hvd_status *status);

    /* Starts a collective. collective->choice may have any numbers, since another process sent it. An error
     * ends the collective. */
    hvd_code (*start)(void *state, struct collective *collective, hvd_status *status);

    /* Called from `start` until it has returned BACKEND_DONE, and once after `abort`. Sets *moved if anything
     * moved or ended; it is then called again soon. */
    enum backend_progress (*progress)(void *state, bool *moved);

    void (*abort)(void *state, const hvd_status *cause);

    /* Runs a collective and returns its outcome, instead of `start`, `progress` and a descriptor, for a
     * library whose calls block. Called without the progress lock, for one collective at a time, in the order
     * of decisions, by any thread: one that waits for the engine anyway, which saves two context switches, or
     * the row's worker. `abort` may be called while it runs, and then ends no collective. */
    hvd_code (*run)(void *state, struct collective *collective, hvd_status *status);

    /* Makes `run` return, or ends the process, if it does not return although the job has failed. */
    void (*kill)(void *state);

    /* Returns the name for the timeline, of any number; NULL: the row's name. */
    const char *(*algorithm_name)(unsigned algorithm);
};

/* The rows of backends.def, in order, and NULL at the end. Decisions have the number of a row. The last row
 * supports every batch and is there on every rank. */
extern const struct backend *const backend_table[];

#define BACKEND(name) extern const struct backend backend_##name;
#include "backend/backends.def"
#undef BACKEND

/* ---- backends --------------------------------------------------------------------------------------------
 * The back ends of one process set: opens the rows, chooses among them, starts collectives in the order of
 * decisions, and makes progress in rows that have work. Threads: as for the functions of a row, above. */

struct worker;

struct backend_row {
    const struct backend *backend;
    struct worker *worker;          /* of a row with `run`; otherwise NULL */
    void *state;                    /* NULL: the row can't be used on this rank */
    char *missing;                  /* the reason; NULL: none, or no memory for it */
    int descriptor;                 /* -1: none */
    enum backend_progress progress; /* the last value that it returned */
};

/* All zero: not open; may be closed. */
struct backends {
    struct backend_row *rows;
    int count;
    int set, rank, root; /* id of the process set; this rank and the root of the set, in the job */
    struct collective_queue started; /* waiting to start in a row */
    struct worker *workers;          /* list of the rows' workers; NULL: none */
    struct turn_source turns;
    bool exclusive; /* the last collective that started runs alone */
    bool prepares;  /* the row of the next collective prepares itself */
    bool aborted;
};

/* Opens the rows of `table`, in order; on failure all of them are closed again. */
hvd_code backends_open(struct backends *backends, const struct backend *const *table,
                       const struct backend_opening *opening, hvd_status *status);
void backends_close(struct backends *backends); /* after all collectives are done */

struct choice backends_choose(const struct backends *backends, const struct backend_query *query);

/* Returns the name for the timeline; the choice may have any numbers. */
const char *backends_algorithm_name(const struct backends *backends, struct choice choice);

/* Queues a collective; not after an abort. backends_progress or backends_abort calls its `done`. */
void backends_start(struct backends *backends, struct collective *collective);

/* Moves all that can move without waiting; returns true if anything moved or a collective ended: call it
 * again. */
bool backends_progress(struct backends *backends);

/* Ends all collectives with `cause`. */
void backends_abort(struct backends *backends, const hvd_status *cause);

/* Returns true if no collective is queued or running. */
bool backends_idle(const struct backends *backends);

/* Returns true if there is work that nothing announces: no thread may sleep. */
bool backends_are_ready(const struct backends *backends);

/* Returns true if progress is needed every BACKEND_POLL_PERIOD although nothing is announced. */
bool backends_poll(const struct backends *backends);

#endif
