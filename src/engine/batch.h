/* batch.h - one decided batch of a communicator: requests become a collective of its back end, and its end
 * theirs; and where its tensors lie: the collective's vectors, and the results that the engine makes
 * (layout.c). Under the progress lock. */
#ifndef HVD_ENGINE_BATCH_H
#define HVD_ENGINE_BATCH_H

#include "coll/collective.h"
#include "coordinate/coordinator.h"
#include "engine/comm.h"
#include "engine/context.h"
#include "engine/handle.h"

/* Lays the requests' tensors out as spans and gives them to the back end. */
void batch_start(struct comm *comm, const struct batch *batch);

/* One allocation: the collective, its handles, and the lists that its vectors need. A group has one for each
 * of its parts, and in these for each element type that is reduced. */
struct running_batch {
    struct collective collective;
    struct comm *comm;
    size_t bytes; /* of this block */
    uint64_t sequence;
    int count;
    bool in_place; /* all of it: the output is the input */
    int part;      /* of a group whose tensors share memory */
    bool follows;  /* another one of the same number is before this one */
    struct hvd_handle **handles;
    uint64_t *own_rows, *row_bytes; /* allgather, alltoall */
    size_t *blocks;                 /* reducescatter */
    void *room;                     /* reducescatter: other ranks' blocks on their way */
    struct memory_event **events;   /* not on the host: of the handles */
};

/* The batch of these handles with empty vectors; NULL when memory is out. */
struct running_batch *layout_create(struct hvd_handle *const *handles, int count, int size);
void layout_free(struct running_batch *running);

/* Fills the vectors in; the collective's operation, type, rank and size are set. */
hvd_code layout_fill(struct running_batch *running, hvd_status *status);

/* The collective's `gathered`. */
hvd_code layout_gathered(struct collective *collective, const uint64_t *rows, hvd_status *status);

/* ---- eager ----------------------------------------------------------------------------------------------
 * Data of small allreduces in the coordinator's messages (docs/coordination.md, "Eager data"). */

/* Bytes in flight whose data may go with the reports of this communicator; 0: none do. */
uint32_t eager_threshold(const struct comm *comm);

/* The coordinator's `contribute` and `combine`. */
void eager_contribute(void *owner, const struct pending *request, uint8_t *data);
void eager_combine(void *owner, const struct signature_summary *what, uint8_t *sum, const uint8_t *other);

/* A batch with its result: writes it to the outputs and ends the request. */
void eager_finish(struct comm *comm, const struct batch *batch);

/* ---- observe ---------------------------------------------------------------------------------------------
 * Events of requests (watch/timeline.h) for the timeline, if the settings enable it.
 * Without it, an event costs one branch. Under the progress lock, except where it says otherwise. */

/* Before any thread makes progress, and when none does any more. */
hvd_code observe_open(struct hvd_context *context, hvd_status *status);
void observe_close(struct hvd_context *context); /* safe on a zeroed context */

static inline bool observed(const struct hvd_context *context)
{
    return context->timeline;
}

void observe_submitted(struct hvd_handle *handle);
/* Rank `rank` of the communicator's set. */
void observe_ready(const struct comm *comm, const char *name, const struct signature_summary *what, int rank);
void observe_deciding(const struct comm *comm);
void observe_dispatched(const struct running_batch *running);
/* Its data came with decision `sequence`. */
void observe_eager(const struct comm *comm, const struct hvd_handle *handle, uint64_t sequence,
                   uint64_t bytes);
void observe_phase(const struct collective *collective, int phase);
/* Before the handle is seen to be done. */
void observe_finished(const struct hvd_handle *handle, const hvd_status *status);

/* ---- tuning ----------------------------------------------------------------------------------------------
 * Autotuning at work: the root of the first process set measures its batches, tries values, and
 * uses them for what it decides, so that all ranks follow without a message. Under the progress lock, but for
 * open and close. */

/* When the settings enable it. Before any thread makes progress, and when none does any more. */
hvd_code tuning_open(struct hvd_context *context, hvd_status *status);
void tuning_close(struct hvd_context *context); /* safe on a zeroed context */

/* A batch starts. */
void tuning_count(struct tuning *tuning, const struct running_batch *running);

/* Before the next decisions: values that have changed come into force; when it is over, `comm` forgets it. */
void tuning_apply(struct comm *comm);

#endif
