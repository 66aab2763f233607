/* opening.h - how a mesh comes about; mesh_open's inner half. */
#ifndef HVD_TRANSPORT_OPENING_H
#define HVD_TRANSPORT_OPENING_H

#include "transport/peer.h"

/* Publishes, connects to all peers, and sets up their links. On failure mesh_close cleans up. */
hvd_code opening_run(struct mesh *mesh, const struct mesh_config *config, hvd_status *status);

#endif
