/* task.h - inside the executor (execute.h): one step that is running, and the collective it belongs to. A
 * task moves as many of its bytes as can move now. Only the thread that makes progress calls it. */
#ifndef HVD_COLL_TASK_H
#define HVD_COLL_TASK_H

#include "coll/collective.h"
#include "coll/execute.h"
#include "device/reduce.h"
#include "device/scaling.h"
#include "transport/transport.h"

struct run;

struct task {
    struct run *run;
    const struct step *step;
    bool awaited;      /* another step waits for this one, element by element */
    uint8_t exponent;  /* an element has 1 << exponent bytes on its way; those of the wire type, if any */
    size_t done;       /* bytes that have moved; whole elements, except while a step sends */
    uint64_t lent;     /* the link's number of the memory that the task has lent */
    struct task *next; /* in its queue */
};

/* One running collective; kept for reuse when the collective is done. */
struct run {
    struct collective *collective;
    struct schedule schedule; /* of the current phase */
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
    bool prescales;              /* there is a factor before the reduction */
    bool finishes;               /* there is a factor after it */
    bool normalizes;             /* every true bool that is only copied becomes 1 */
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

/* Moves up to `open` > 0 bytes and returns how many; 0: nothing can move now; -1: the link is broken. `link`
 * is NULL for a local step. */
ssize_t task_move(const struct task *task, struct link *link, size_t open);

#endif
