/* connector.h - connections of meshes on their way to become links: it dials the peers of lower rank
 * (link_dial.h), claims the connections of the others (acceptor.h), negotiates, and lets the transport open
 * the links. No order of arrival can block another. Nothing blocks except connector_run.
 *
 * The hub has one for its life, whose poller is in the hub's; it is used under the progress lock. Another
 * mesh has one while it is opened, for the thread that opens it. */
#ifndef HVD_TRANSPORT_CONNECTOR_H
#define HVD_TRANSPORT_CONNECTOR_H

#include "transport/acceptor.h"
#include "transport/mesh_open.h"

struct link_dial;

struct connector {
    struct mesh *mesh;
    int poller;
    struct claimant claimant; /* of another mesh than the hub; otherwise its event is -1 */
    struct watch watch;       /* of the hub's: for the poller */
    struct link_dial *dials;  /* what this rank dials */
    struct attempt *attempts; /* accepted by this rank and claimed */
    int64_t next;             /* when it needs a turn even if nothing arrives */
};

hvd_code connector_create(struct mesh *mesh, struct connector **connector, hvd_status *status);
void connector_free(struct connector *connector);    /* NULL is fine */
void connector_abandon(struct connector *connector); /* as mesh_abandon */

/* Runs until all neighbours have all links: HVD_OK; HVD_TIMED_OUT: the deadline passed. */
hvd_code connector_run(struct connector *connector, const struct mesh_config *config, hvd_status *status);

/* Starts to open the links to a peer of an attached mesh; a failure is the loss of the peer. */
void connector_want(struct connector *connector, struct peer *peer);
/* Drops the connections that are on their way for the mesh. */
void connector_forget(struct connector *connector, const struct mesh *mesh);

/* Continues as far as possible without waiting: when the poller has news, or at `next`. */
hvd_code connector_turn(struct connector *connector, hvd_status *status);
void connector_turn_logged(struct connector *connector); /* of a hub's: writes a fault to the log */
/* From here on the hub's poller reports the connector. False: errno. */
bool connector_watch(struct connector *connector);

#endif
