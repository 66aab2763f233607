/* batch.h - one decided batch of a communicator: requests become a collective of its back end, and its end
 * theirs. Under the progress lock. */
#ifndef HVD_ENGINE_BATCH_H
#define HVD_ENGINE_BATCH_H

#include "coordinate/coordinator.h"
#include "engine/comm.h"

/* Lays the requests' tensors out as spans and queues the job. */
void batch_start(struct comm *comm, const struct batch *batch);

#endif
