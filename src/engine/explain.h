/* explain.h - the silence of peers in words: causes that end the job, and a warning before. Under the
 * progress lock. */
#ifndef HVD_ENGINE_EXPLAIN_H
#define HVD_ENGINE_EXPLAIN_H

#include "coordinate/coordinator.h"
#include "horovod.h"

struct comm;
struct edge;

/* The cause with which the ranks end the job once they agree on which are silent. */
void explain_silence(const struct comm *comm, const struct silence *silence, hvd_status *cause);

/* Writes such a cause for places of the communicator that no message reaches. */
void explain_silent(const struct comm *comm, const struct rank_set *lost, hvd_status *cause);

/* Nothing was acknowledged on one path to `peer`, a rank of the job: either end may find it, and the text
 * names both. */
void explain_broken(const struct comm *comm, int peer, const char *path, hvd_status *cause);

/* Logs that requests wait for a peer that has been silent for this long. */
void explain_wait(const struct comm *comm, const struct edge *edge, double seconds);

#endif
