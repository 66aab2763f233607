/* heartbeat.h - peers that do not answer. Who waits long asks each peer that says nothing whether it is
 * there; the engine of a living process answers whatever its program does, so a silent one is stopped, or out
 * of reach. Unlike the stall report this needs no coordinator that works: rank 0 may be the silent one.
 * Driver only. */
#ifndef HVD_ENGINE_HEARTBEAT_H
#define HVD_ENGINE_HEARTBEAT_H

#include "engine/context.h"

/* When to look next; to be asked when this rank is about to sleep. */
int64_t heartbeat_deadline(struct hvd_context *context, bool waits);

/* Does nothing before the deadline; then asks, warns, and after the shutdown time ends the job. */
void heartbeat_check(struct hvd_context *context);

#endif
