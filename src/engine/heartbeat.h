/* heartbeat.h - detects peers that do not answer. While this rank waits long it pings every peer that sends
 * nothing. The engine of a living process answers whatever its program does, so a peer without an answer is
 * stopped or unreachable. Unlike the stall report this needs no working coordinator: the peer may be rank 0.
 * Under the progress lock. */
#ifndef HVD_ENGINE_HEARTBEAT_H
#define HVD_ENGINE_HEARTBEAT_H

#include "engine/context.h"

/* When the next check is due; called before this rank sleeps. */
int64_t heartbeat_deadline(struct hvd_context *context, bool waits);

/* Does nothing before the deadline; then pings, warns, and after the shutdown time ends the job. */
void heartbeat_check(struct hvd_context *context);

#endif
