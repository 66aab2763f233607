/* track.h - the collectives of one channel: those that run, and the queues of their steps at each link.
 * Inside the executor: only the thread that makes progress calls it. */
#ifndef HVD_COLL_TRACK_H
#define HVD_COLL_TRACK_H

#include "coll/execute.h"
#include "coll/task.h"

struct task_queue {
    struct task *head, *tail;
};

/* The steps that wait for one link. */
struct endpoint {
    struct link *link; /* NULL: the first step that can move starts to open it */
    int peer;
    bool broken;
    struct task_queue sends, receives;
    struct task_queue lent;     /* sent, but the peer still reads the tensors */
    struct endpoint *next;      /* in `endpoints` */
    struct endpoint *next_busy; /* in `busy` */
    bool busy;                  /* in the list `busy` */
};

struct track {
    int channel;
    link_lookup_fn lookup;
    void *owner;                       /* of lookup */
    struct collective_queue *finished; /* the executor's queue */
    struct collective_queue waiting;
    struct collective_queue leaving; /* collectives whose output is still being copied */
    struct run *running;             /* the newest first */
    struct run *planner;             /* the run that has phases to plan; `waiting` waits for it */
    struct run *spare;               /* for reuse */
    struct task_queue local;         /* steps that need no link */
    struct endpoint *endpoints;
    struct endpoint *busy, **busy_end; /* those with steps in a queue, which turns visit */
    bool stopped;                      /* a collective failed: no further one may start */
};

/* Does for this track what executor_progress does; appends collectives that end to `finished`. */
bool track_progress(struct track *track);

/* Moves all collectives from the track to `finished` with this cause, without touching links or tensors. */
void track_abort(struct track *track, const hvd_status *cause);

bool track_idle(const struct track *track);

/* Returns true if a device copies to or from staging memory: nothing announces its end. */
bool track_awaits_device(const struct track *track);

/* Returns true if there is work that no peer announces: such a copy, or a step of this rank alone. */
bool track_is_ready(const struct track *track);
void track_free(struct track *track); /* also frees the struct itself */

#endif
