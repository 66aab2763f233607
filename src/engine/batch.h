/* batch.h - one decided batch of a communicator: requests become a collective of its back end, and its end
 * theirs; where its tensors lie, as the collective's vectors and the results that the engine makes; the
 * requests of a rank that has joined; and small allreduces whose data travel in the coordinator's messages
 * (docs/coordination.md, "Eager data"). Under the progress lock. */
#ifndef HVD_ENGINE_BATCH_H
#define HVD_ENGINE_BATCH_H

#include "coll/collective.h"
#include "coordinate/coordinator.h"

struct comm;
struct hvd_handle;

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

/* Bytes in flight whose data may go with the reports of this communicator; 0: none do. */
uint32_t eager_threshold(const struct comm *comm);

/* The coordinator's `contribute` and `combine`. */
void eager_contribute(void *owner, const struct pending *request, uint8_t *data);
void eager_combine(void *owner, const struct signature_summary *what, uint8_t *sum, const uint8_t *other);

#endif
