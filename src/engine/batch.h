/* batch.h - one decided batch of a communicator: requests become a collective of its back end, and its end
 * theirs; and where its tensors lie: the collective's vectors, and the results that the engine makes
 * (layout.c). Under the progress lock. */
#ifndef HVD_ENGINE_BATCH_H
#define HVD_ENGINE_BATCH_H

#include "coll/collective.h"
#include "coordinate/coordinator.h"
#include "engine/comm.h"
#include "engine/handle.h"

/* Lays the requests' tensors out as spans and queues the job. */
void batch_start(struct comm *comm, const struct batch *batch);

/* One allocation: the collective, its handles, and the lists that its vectors need. */
struct running_batch {
    struct collective collective;
    struct comm *comm;
    size_t bytes; /* of this block */
    uint64_t sequence;
    int count;
    bool in_place; /* all of it: the output is the input */
    struct hvd_handle **handles;
    uint64_t *own_rows, *row_bytes; /* allgather, alltoall */
    size_t *blocks;                 /* reducescatter */
    void *room;                     /* reducescatter: other ranks' blocks on their way */
    struct memory_event **events;   /* not on the host: of the handles */
};

/* The batch of these handles with empty vectors; NULL when memory is out. */
struct running_batch *layout_create(struct hvd_handle *const *handles, int count, int size);
void layout_free(struct running_batch *running);

/* Fills the vectors in; the collective's operation, rank and size are set. */
hvd_code layout_fill(struct running_batch *running, hvd_status *status);

/* The collective's `gathered`. */
hvd_code layout_gathered(struct collective *collective, const uint64_t *rows, hvd_status *status);

#endif
