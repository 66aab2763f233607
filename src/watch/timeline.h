/* timeline.h - the events of a request on its way through the engine, and the timeline, which writes them as
 * a Chrome trace (docs/timeline.md). A bounded queue passes them to a thread of its own, which sleeps while
 * there are none. The engine emits events in order, with the progress lock held; timeline_notice must neither
 * block nor call back. Starting and stopping: any thread. */
#ifndef HVD_WATCH_TIMELINE_H
#define HVD_WATCH_TIMELINE_H

#include "horovod.h"

#include <stdbool.h>

enum event_kind {
    EVENT_SUBMITTED,  /* by this rank */
    EVENT_READY,      /* submitted by `rank`; only at the root of the process set's coordinator */
    EVENT_DECIDING,   /* also only there: the next batches are about to be composed; has no request */
    EVENT_DISPATCHED, /* submitted by all ranks: it is part of `batch`, and queued after earlier batches */
    EVENT_PHASE, /* phase `phase` of the batch's algorithm starts to move data; the previous one has ended */
    EVENT_FINISHED, /* its handle is done, with `status` */
    EVENT_MARKED    /* the program says what has happened: `name`; has no request */
};

struct event_batch {
    uint64_t number;                   /* of the decision, in its process set */
    int requests;                      /* number of requests that run as one */
    uint64_t bytes;                    /* of this rank's inputs */
    const char *algorithm, *transport; /* constants, e.g. "ring", "shm" */
};

/* Valid during the call only. Fields that do not apply are 0. */
struct event {
    enum event_kind kind;
    int64_t time; /* clock_now's */
    int process_set;
    const char *name; /* on the wire, e.g. "allreduce.conv1.weight" */
    hvd_operation operation;
    hvd_reduction reduction;    /* of those that reduce */
    const hvd_request *request; /* this rank's; not with EVENT_READY */
    int rank;                   /* of the job */
    int phase;
    const struct event_batch *batch;
    const hvd_status *status;
};

struct timeline;

/* Makes a timeline that records no events yet. `rank` is for messages. */
hvd_code timeline_create(int rank, struct timeline **timeline, hvd_status *status);

/* Any thread. Records into this file from now on; closes an earlier recording first. `epoch`: of an elastic
 * job; after the first one, what its earlier epochs have written stays, and the time goes on. The text of an
 * error names the file. */
hvd_code timeline_start(struct timeline *timeline, const char *path, bool mark_cycles, int epoch,
                        hvd_status *status);

/* Any thread. When it returns, the file is complete with all events recorded before. Fine if there is no
 * recording. */
void timeline_stop(struct timeline *timeline);

/* Called with the progress lock held; EVENT_MARKED: any thread. Copies the event; never waits for the file.
 */
void timeline_notice(struct timeline *timeline, const struct event *event);

/* Stops, and frees the timeline. No event may be recorded any longer; NULL is fine. */
void timeline_destroy(struct timeline *timeline);

#endif
