/* lane_paths.h - the network paths over which a long link is striped: how many lanes it gets, and to which of
 * the peer's addresses each one leads. The thread that dials. */
#ifndef HVD_TRANSPORT_LANE_PATHS_H
#define HVD_TRANSPORT_LANE_PATHS_H

#include "transport/peer.h"

/* The number of sockets over which messages of the channel travel; 1: the link is not striped. */
int lane_paths_count(const struct peer *peer, int row, int channel);

/* The peer's address for a lane behind the first one, which is open: the paths take turns, from that of the
 * first lane on. */
int lane_paths_address(const struct peer *peer, int row, int lane);

#endif
