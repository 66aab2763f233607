/* heartbeat.h - detects peers that do not answer. While this rank waits long it pings every peer that sends
 * nothing. The engine of a living process answers whatever its program does, so a peer without an answer is
 * stopped or unreachable. Unlike the stall report this needs no working coordinator: the peer may be rank 0.
 * Under the progress lock. */
#ifndef HVD_ENGINE_HEARTBEAT_H
#define HVD_ENGINE_HEARTBEAT_H

#include "base/clock.h"
#include "base/settings.h"
#include "horovod.h"

#include <stdbool.h>

struct comm;

/* Returns when the next check is due; called before this rank sleeps. `quiet`: no operation waits. */
int64_t heartbeat_deadline(struct hvd_context *context, bool quiet);

/* Does nothing before the deadline; then pings and warns, and reports peers that are silent for too long to
 * the coordinator of set 0, which ends the job. */
void heartbeat_check(struct hvd_context *context);

/* Attributes the loss of a rank of the job on another host to an earlier silence: if the rank was silent for
 * the whole limit, that is reported; a silence that was reported already serves as well. Either ends the job.
 * Returns false if there was none. */
bool heartbeat_attribute_loss(struct comm *comm, int peer);

#define CHECKS_PER_PERIOD 32
#define CHECKS_TO_COLLECT 3

/* Returns how long the ranks collect reports of silence before the job ends, in ns. */
static inline int64_t heartbeat_collecting_time(const struct settings *settings)
{
    return (int64_t)(settings_silence_limit(settings) * CLOCK_SECOND) / CHECKS_PER_PERIOD * CHECKS_TO_COLLECT;
}

#endif
