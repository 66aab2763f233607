/* context.h - what one rank of one job holds; shared by the files of engine/ only.
 *
 * Threads. One thread at a time drives: it owns the mesh, the executor and the lanes. It is a caller that
 * waits, or else the background thread. `driver` says whether somebody drives; whenever nobody does, the mesh
 * is armed and the background thread listens, or naps while this rank waits for nothing. User threads touch
 * only the submission queue, their handles and the atomics. */
#ifndef HVD_ENGINE_CONTEXT_H
#define HVD_ENGINE_CONTEXT_H

#include "base/forked.h"
#include "base/pool.h"
#include "base/settings.h"
#include "engine/counters.h"
#include "engine/handle.h"
#include "engine/lane.h"
#include "engine/sets.h"
#include "watch/timeline.h"

#include <pthread.h>
#include <stdatomic.h>

struct hvd_config {
    struct settings settings;
    struct interrupt interrupt;
};

struct hvd_context {
    atomic_int references; /* the owner's and one per handle not yet freed */
    struct pool pool;      /* of the handles, under `pool_lock` */
    pthread_mutex_t pool_lock;
    struct settings settings;
    struct interrupt interrupt; /* of blocking calls other than hvd_wait, which has a deadline */
    hvd_placement placement;
    atomic_bool forked; /* this is the child's copy */

    struct counters counters;
    struct timeline *timeline; /* NULL: not asked for, or another rank's; constant once somebody drives */

    struct tuning *tuning; /* NULL: not asked for, over, or another rank's; driver only */

    uint32_t generation; /* of the job's name: how often this rank had joined it before */

    struct lane *world;           /* all ranks; the first in the list of lanes */
    _Atomic(struct lane *) added; /* process sets that the driver has not yet taken into the list */
    struct sets sets;
    int last_set; /* the highest id given out; driver only */

    atomic_uint driver;                 /* DRIVER_* in drive.c */
    _Atomic int64_t deadline;           /* when the background thread has to look though nothing arrives */
    atomic_uint listener_waits;         /* the background thread sleeps on `driver` */
    bool napping;                       /* and looks again soon, unasked; driver only */
    bool driven;                        /* by a caller, since the last look; driver only */
    atomic_int wanted;                  /* callers that would rather drive than wait */
    _Atomic(struct hvd_handle *) queue; /* submitted, newest first */
    struct hvd_handle *finished_calls;  /* done, `done` function yet to be called */
    int64_t next_look;   /* at peers that keep silent; 0: this rank does not wait; driver only */
    unsigned turns;      /* of progress, to look at the kernel only now and then */
    int64_t caller_spin; /* ns of polling before yielding */
    int crowded;         /* the driver's: see drive.c */

    atomic_bool leaving;     /* hvd_shutdown was called */
    bool leave_said;         /* and the coordinator knows; driver only */
    atomic_uint closed;      /* nobody needs this rank any more; a futex word */
    hvd_status fault;        /* code not HVD_OK: what a callback found; driver only */
    atomic_bool failed;      /* `failure` is valid */
    hvd_status failure;      /* why nothing runs any more; written once, before `failed` */
    atomic_bool stop;        /* the background thread has to end */
    bool background_running; /* `background` is valid */
    pthread_t background;

    struct forked_watch watch; /* sets `forked` */
};

void context_retain(struct hvd_context *context);
void context_release(struct hvd_context *context);

/* HVD_FORKED in a child of the process that opened the context. */
hvd_code context_check_process(const struct hvd_context *context, hvd_status *status);

#endif
