/* task.h - one step under way, and the collective it belongs to: moves as many of its bytes as can move now.
 */
#ifndef HVD_COLL_TASK_H
#define HVD_COLL_TASK_H

#include "coll/collective.h"
#include "device/reduce.h"
#include "transport/transport.h"

struct run;

struct task {
    struct run *run;
    const struct step *step;
    bool awaited;      /* another step waits for this one, byte by byte */
    size_t done;       /* bytes of the step */
    uint64_t lent;     /* the link's, when the task was sent */
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
    combine_fn combine;
    scale_fn scale;
    size_t bytes;             /* of the collective's input or output, whichever is longer */
    scaled_sum_fn scaled_sum; /* NULL: what is added last is scaled in a pass of its own */
    bool prescales, finishes; /* whether the factors before and after the reduction differ from 1 */
    int64_t divisor;
    struct run *previous, *next; /* in the track */
};

/* Makes `run` ready for phase 0 of a collective. */
void run_begin(struct run *run, struct collective *collective);

/* Bytes that the step may move now as far as its gate is concerned; whole elements where it reduces or
 * copies, whole chunks where it computes. */
size_t task_open(const struct task *task);

/* Moves up to `open` > 0 bytes and returns how many; 0: nothing can move now; -1: the link is broken. A
 * local step has no link. */
ssize_t task_move(const struct task *task, struct link *link, size_t open);

#endif
