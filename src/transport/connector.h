/* connector.h - connections of meshes on their way to become links. Of two ranks the higher one connects, the
 * lower one accepts (acceptor.h). No order of arrival can block another, and nothing blocks but
 * connector_run.
 *
 * The hub has one for its life, whose poller is in the hub's; it is used under the progress lock. Another
 * mesh has one while it is opened, for the thread that opens it. */
#ifndef HVD_TRANSPORT_CONNECTOR_H
#define HVD_TRANSPORT_CONNECTOR_H

#include "transport/acceptor.h"

struct connector {
    struct mesh *mesh;
    int poller, event;                /* event: of another mesh than the hub, else -1 */
    struct attempt *attempts;         /* authenticated, or begun by this rank */
    int64_t next;                     /* when it needs a turn though nothing arrives */
    const struct mesh_config *config; /* while connector_run runs, else NULL */
    int64_t next_heartbeat;           /* then: whether a peer has failed; 0: not yet */
    struct connector *next_listed;    /* under the acceptor's lock, as the fault */
    hvd_status fault;                 /* no descriptor to accept a connection */
};

hvd_code connector_create(struct mesh *mesh, struct connector **connector, hvd_status *status);
void connector_free(struct connector *connector);    /* NULL is fine */
void connector_abandon(struct connector *connector); /* as mesh_abandon */

/* Until all neighbours have all links: HVD_OK; HVD_TIMED_OUT: the deadline passed. */
hvd_code connector_run(struct connector *connector, const struct mesh_config *config, hvd_status *status);

/* Begins to open the links to a peer of an attached mesh; a failure is the loss of the peer. */
void connector_want(struct connector *connector, struct peer *peer);
/* Drops what is under way for the mesh. */
void connector_forget(struct connector *connector, const struct mesh *mesh);

/* The mesh of this number, if the connector serves it, else NULL. */
struct mesh *connector_mesh(const struct connector *connector, unsigned number);

/* Goes on as far as possible without waiting: when the poller has news, or at `next`. */
hvd_code connector_turn(struct connector *connector, hvd_status *status);

#endif
