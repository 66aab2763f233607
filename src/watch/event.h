/* event.h - what happens to a request on its way through the engine. The engine tells events in their order,
 * from the thread that drives; who observes must not block, and must not call back. Nothing that is told
 * depends on who listens. */
#ifndef HVD_WATCH_EVENT_H
#define HVD_WATCH_EVENT_H

#include "horovod.h"

enum event_kind {
    EVENT_SUBMITTED,  /* this rank asks for it */
    EVENT_READY,      /* `rank` asks for it, too; only at the rank that counts, the first of a process set */
    EVENT_DECIDING,   /* there as well: the next batches are about to be composed; of no request */
    EVENT_DISPATCHED, /* all ranks have asked: it is part of `batch`, behind the batches before it */
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
