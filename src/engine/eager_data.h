/* eager_data.h - small allreduces whose data travel in the coordinator's messages (docs/coordination.md,
 * "Eager data"). Under the progress lock. */
#ifndef HVD_ENGINE_EAGER_DATA_H
#define HVD_ENGINE_EAGER_DATA_H

#include "coordinate/coordinator.h"

struct comm;

/* How many bytes in flight may travel in the reports of this communicator; 0: none. */
uint32_t eager_threshold(const struct comm *comm);

/* The coordinator's `contribute` and `combine`. */
void eager_contribute(void *owner, const struct pending *request, uint8_t *data);
void eager_combine(void *owner, const struct signature_summary *what, uint8_t *sum, const uint8_t *other);

/* Writes the result, and ends the request; a rank that has joined has none. */
void eager_finish(struct comm *comm, const struct batch *batch);

#endif
