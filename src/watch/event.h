/* event.h - the events of a request on its way through the engine. The engine emits them in order, with the
 * progress lock held; an observer must neither block nor call back. Events do not depend on their observers.
 */
#ifndef HVD_WATCH_EVENT_H
#define HVD_WATCH_EVENT_H

#include "horovod.h"

enum event_kind {
    EVENT_SUBMITTED,  /* by this rank */
    EVENT_READY,      /* submitted by `rank`; only at the root of the process set's coordinator */
    EVENT_DECIDING,   /* there as well: the next batches are about to be composed; of no request */
    EVENT_DISPATCHED, /* submitted by all ranks: it is part of `batch`, behind the batches before it */
    EVENT_PHASE,      /* phase `phase` of the batch's algorithm begins to move data; the one before is over */
    EVENT_FINISHED    /* its handle is done, with `status` */
};

struct event_batch {
    uint64_t number;                   /* of the decision, in its process set */
    int requests;                      /* that run as one */
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

#endif
