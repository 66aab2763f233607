/* track.h - the collectives of one channel: which of them are under way, and the queues of their steps at
 * each link. One thread at a time, as execute.h. */
#ifndef HVD_COLL_TRACK_H
#define HVD_COLL_TRACK_H

#include "coll/execute.h"
#include "coll/task.h"

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
