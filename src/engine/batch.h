/* batch.h - one decided batch of a communicator: its requests become collectives of a back end, and end with
 * them. It lists the memory of the tensors as the collective's vectors, and allocates results. Under the
 * progress lock. */
#ifndef HVD_ENGINE_BATCH_H
#define HVD_ENGINE_BATCH_H

#include "coll/collective.h"
#include "coordinate/coordinator.h"
#include "engine/handle.h"

struct comm;

/* Lists the requests' tensors as spans and passes them to the back end. */
void batch_start(struct comm *comm, const struct batch *batch);

/* One allocation holds the collective, its handles, and the lists that its vectors need. A group has one
 * running_batch for each element type that is reduced in each of its parts. */
struct running_batch {
    struct collective collective;
    struct comm *comm;
    size_t bytes; /* of this block */
    uint64_t sequence;
    int count;
    bool in_place; /* of all tensors the output is the input */
    int part;      /* of a group whose tensors share memory */
    bool follows;  /* not the first collective of its decision */
    struct hvd_handle **handles;
    uint64_t *own_rows, *row_bytes; /* allgather, alltoall */
    uint64_t *rows;                 /* of all ranks, if the decision has them */
    size_t *blocks;                 /* reducescatter */
    void *room;                     /* reducescatter: intermediate results of other ranks' blocks */
    struct memory_event **events;   /* of the handles, on devices other than the host */
};

/* Returns true if a tensor of one of the handles is in this collective. */
static inline bool batch_includes(const struct running_batch *running, const struct hvd_handle *handle,
                                  int tensor)
{
    const struct collective *collective = &running->collective;
    return (!operation_reduces(collective->operation) ||
            handle->request.inputs[tensor].dtype == collective->dtype) &&
           (!handle->parts.of || handle->parts.of[tensor] == running->part);
}

#endif
