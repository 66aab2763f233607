/* stand_in.h - the contribution of a rank that has joined to the later collectives of the others. Under the
 * progress lock. */
#ifndef HVD_ENGINE_STAND_IN_H
#define HVD_ENGINE_STAND_IN_H

#include "coordinate/coordinator.h"
#include "engine/handle.h"

struct comm;

/* Creates a handle of the engine's own for the agreed request, on the agreed type of device: its data are the
 * reduction's identity, it has no rows to gather, and its memory holds results that are thrown away. */
hvd_code stand_in_create(struct comm *comm, const struct member *member, struct hvd_handle **handle,
                         hvd_status *status);

#endif
