/* connector.h - all connections of a mesh that is being opened, in one poll loop: no order of arrival can
 * block another. The higher rank of two connects, the lower one accepts. */
#ifndef HVD_TRANSPORT_CONNECTOR_H
#define HVD_TRANSPORT_CONNECTOR_H

#include "base/rate_limit.h"
#include "transport/attempt.h"

#include <poll.h>

struct connector { /* zeroed memory with listeners of -1 is a valid empty one */
    struct mesh *mesh;
    const struct mesh_config *config;
    const struct record *mine, *records; /* records: one per peer */
    int listeners[TRANSPORT_LIMIT];      /* by row */
    struct attempt **attempts;
    struct pollfd *polls;
    int count, capacity;
    int64_t paused_until;   /* no new connections before */
    int64_t next_heartbeat; /* whether a peer has failed; 0: not yet */
    struct rate_limit rate_limit;
};

/* Until all peers have all links: HVD_OK; HVD_TIMED_OUT: the deadline passed, see peer->cause. */
hvd_code connector_run(struct connector *connector, hvd_status *status);
void connector_free(struct connector *connector); /* closes the listeners, too */

bool connector_peer_is_complete(const struct peer *peer);

#endif
