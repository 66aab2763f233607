/* stand_in.h - the contribution of a rank that has joined to the later collectives of the others. Under the
 * progress lock. */
#ifndef HVD_ENGINE_STAND_IN_H
#define HVD_ENGINE_STAND_IN_H

#include "coordinate/request.h"
#include "engine/comm.h"

/* A handle of the engine's own for the request that was agreed on: with the reduction's identity as data, on
 * the type of device that was agreed on, no rows to gather, and memory for what comes and is thrown away. */
hvd_code stand_in_create(struct comm *comm, const struct member *member, struct hvd_handle **handle,
                         hvd_status *status);

#endif
