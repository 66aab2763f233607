/* backends.h - the back ends of one process set: opens the rows, chooses among them, starts collectives in
 * the order of decisions, makes progress in those that have work. Threads as in backend.h. */
#ifndef HVD_BACKEND_BACKENDS_H
#define HVD_BACKEND_BACKENDS_H

#include "backend/backend.h"

struct backend_row {
    const struct backend *backend;
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
    bool apart;                      /* the last one that went into a row */
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
