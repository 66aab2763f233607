/* task.h - inside the executor (execute.h): the tasks of steps, the tracks that order them, and the staging
 * of device memory. */
#ifndef HVD_COLL_TASK_H
#define HVD_COLL_TASK_H

#include "coll/collective.h"
#include "coll/execute.h"
#include "device/reduce.h"
#include "device/scaling.h"
#include "transport/transport.h"

/* ---- staging ---------------------------------------------------------------------------------------------
 * Collectives of tensors that the host can't reach. Their steps run on host memory: the input is
 * copied there before the first step, the output is copied to the tensors after the last one. Nothing else in
 * this folder, and no transport, knows of any memory but the host's. One thread at a time, as execute.h.
 *
 * Each byte crosses to the host once and back once, which no way of moving single steps does better. */

/* Replaces the collective's vectors by host memory; does nothing where they are host memory already
 * (collective->memory is NULL). */
hvd_code staging_begin(struct collective *collective, hvd_status *status);

/* Moves the input on; HVD_IN_PROGRESS: call again; HVD_OK: the steps may run. Fine without staging. */
hvd_code staging_take_input(struct collective *collective, hvd_status *status);

/* After the last step: moves the output on; HVD_OK: it lies in the tensors. */
hvd_code staging_give_output(struct collective *collective, hvd_status *status);

/* Waits for copies under way; the collective's vectors must not be used any more. Fine without staging. */
void staging_end(struct collective *collective);

/* ---- task ------------------------------------------------------------------------------------------------
 * One step under way, and the collective it belongs to: moves as many of its bytes as can move now. */

struct run;

struct task {
    struct run *run;
    const struct step *step;
    bool awaited; /* another step waits for this one, element by element */
    uint8_t
        exponent;  /* an element that moves has 1 << exponent bytes: those of the wire type if there is one */
    size_t done;   /* bytes that have moved; whole elements, except while a step sends */
    uint64_t lent; /* the link's, when the task was sent */
    struct task *next; /* in its queue */
};

/* One collective under way. Kept for reuse when the collective is done. */
struct run {
    struct collective *collective;
    struct schedule schedule; /* of the present phase */
    struct task *tasks;       /* one for each step */
    int capacity;             /* of tasks */
    int left;                 /* steps of this phase not yet done */
    int phase;                /* the next one to plan */
    bool more;                /* whether there is a next one */
    size_t element;           /* bytes */
    uint8_t exponent;         /* element == 1 << exponent */
    combine_fn combine;
    size_t bytes; /* of the collective's input or output, whichever is longer */
    struct scaling scaling;
    weigh_fn weigh;              /* for `combine` if each rank's elements have a weight; otherwise NULL */
    bool prescales, finishes;    /* whether there are factors before and after the reduction */
    bool normalizes;             /* of a bool that is only copied, every true one becomes 1 */
    struct run *previous, *next; /* in the track */
};

/* Makes `run` ready for phase 0 of a collective. */
void run_begin(struct run *run, struct collective *collective);

/* Makes `task` ready to carry out a step of `run`. */
void task_begin(struct task *task, struct run *run, const struct step *step);

/* Returns how many bytes the step may move now as far as its gate is concerned, up to the end of an element
 * or, if it computes, of a chunk. */
size_t task_open(const struct task *task);

static inline bool task_is_done(const struct task *task)
{
    return task->done == task->step->length << task->exponent;
}

/* Moves up to `open` > 0 bytes and returns how many; 0: nothing can move now; -1: the link is broken. A
 * local step has no link. */
ssize_t task_move(const struct task *task, struct link *link, size_t open);

/* ---- track -----------------------------------------------------------------------------------------------
 * The collectives of one channel: which of them are under way, and the queues of their steps at
 * each link. One thread at a time, as execute.h. */

struct task_queue {
    struct task *head, *tail;
};

/* The steps that wait for one link. */
struct endpoint {
    struct link *link; /* NULL: the first step that can move begins to open it */
    int peer;
    bool broken;
    struct task_queue sends, receives;
    struct task_queue lent;            /* sent, but the peer still reads the tensors */
    struct endpoint *next, *next_busy; /* in the track's lists */
    bool busy;                         /* in the second */
};

struct track {
    int channel;
    link_lookup_fn lookup;
    void *owner;                       /* of lookup */
    struct collective_queue *finished; /* the executor's; done is still to be called */
    struct collective_queue waiting;
    struct collective_queue leaving; /* their steps are done, but the output is still being copied */
    struct run *running;             /* under way, the newest first */
    struct run *planner;     /* the one that has phases to plan; the waiting collectives wait for it */
    struct run *spare;       /* for reuse */
    struct task_queue local; /* steps that need no link */
    struct endpoint *endpoints;
    struct endpoint *busy, **busy_end; /* those that turns look at: with steps in a queue */
    bool stopped;                      /* a collective failed here: no further one may start */
};

/* As executor_progress, for this track; collectives that end go to `finished`. */
bool track_progress(struct track *track);

/* Takes all collectives off the track without touching links or tensors; they go to `finished` with this
 * cause. */
void track_abort(struct track *track, const hvd_status *cause);

bool track_idle(const struct track *track);

/* Whether a device copies to or from staging memory: nothing announces its end. */
bool track_awaits_device(const struct track *track);

/* Whether there is work that no peer announces: that, or a step of this rank alone. */
bool track_is_ready(const struct track *track);
void track_free(struct track *track); /* its memory, and the struct itself */

#endif
