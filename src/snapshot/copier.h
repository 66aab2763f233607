/* copier.h - a thread that copies a share of a state into the memory of a host copy, concurrently with the
 * program, and publishes it. One thread at a time calls these functions. */
#ifndef HVD_SNAPSHOT_COPIER_H
#define HVD_SNAPSHOT_COPIER_H

#include "horovod.h"
#include "snapshot/host_copy.h"

#include <stdatomic.h>
#include <stdbool.h>

/* What is to be copied: bytes `from` to `to` of all parts together are the share. Share 0 also has those
 * behind the `state.bytes` that all have, which `state.own` counts. */
struct copier_task {
    struct host_copy *copy;
    int buffer, share;
    struct publication_state state;
    size_t from, to;
    hvd_memory *parts; /* the copier frees it */
    int count;
};

struct copier {
    pthread_t thread;
    pthread_mutex_t lock; /* of the members below */
    pthread_cond_t change;
    bool runs, ends, busy; /* busy: `task` is to be done */
    struct copier_task task;
    hvd_status outcome;    /* of the last task */
    atomic_bool abandoned; /* the task is to end without being published */
};

/* Copies and publishes a share in the calling thread. HVD_INTERRUPTED: `abandoned` was set meanwhile. */
hvd_code copier_run(const struct copier_task *task, const atomic_bool *abandoned, hvd_status *status);

void copier_init(struct copier *copier);
void copier_fini(struct copier *copier);
/* Starts the next task. The share of the last one is published, or it was abandoned. */
hvd_code copier_start(struct copier *copier, const struct copier_task *task, hvd_status *status);
/* Waits for the end of the task that runs. */
void copier_finish(struct copier *copier);
/* Ends the task that runs, which may leave its share unpublished. */
void copier_abandon(struct copier *copier);
/* Returns HVD_IN_PROGRESS, or the outcome of the last task. Any thread. */
hvd_code copier_outcome(struct copier *copier, hvd_status *status);

#endif
