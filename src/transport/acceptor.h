/* acceptor.h - the listeners of a hub and the connections to them that have not authenticated yet.
 *
 * It is open for the life of the hub, so that a link can be opened at any time, and serves all its meshes:
 * the handshake names the mesh. While no one connects it costs nothing: its descriptors are in the poller of
 * the hub's connector. Unauthenticated connections are bounded in number and time, so that a flood or a
 * stalled one keeps no rank out; what has arrived is read before a connection is dropped for its age. An
 * authenticated one waits here until the connector of its mesh takes it: the hub's for attached meshes, else
 * that of the thread that opens the mesh, which may begin later.
 *
 * Under the progress lock, or in the thread that opens the hub. acceptor_enlist, acceptor_delist and
 * acceptor_take: any thread. */
#ifndef HVD_TRANSPORT_ACCEPTOR_H
#define HVD_TRANSPORT_ACCEPTOR_H

#include "base/rate_limit.h"
#include "transport/attempt.h"

#include <pthread.h>

struct connector;

struct acceptor {
    struct mesh *hub;
    int poller;                     /* its tags: attempts; NULL: a listener */
    int listeners[TRANSPORT_LIMIT]; /* by row; -1: none */
    struct attempt *attempts;       /* unauthenticated, the newest first */
    int count;
    int64_t paused_until; /* no new connections before; 0: not paused */
    struct rate_limit rate_limit;
    pthread_mutex_t lock;
    struct attempt *authenticated; /* not taken yet */
    struct connector *connectors;  /* of meshes that are being opened */
};

void acceptor_init(struct acceptor *acceptor, struct mesh *hub, int poller);
void acceptor_close(struct acceptor *acceptor);
void acceptor_abandon(struct acceptor *acceptor); /* as mesh_abandon */

/* Takes over the listener of a row. */
hvd_code acceptor_listen(struct acceptor *acceptor, int row, int listener, hvd_status *status);

/* Takes new connections. Without a descriptor for one those who open a mesh fail; where no one does it is
 * tried again. */
hvd_code acceptor_accept(struct acceptor *acceptor, hvd_status *status);
/* The poller has reported the attempt, one of its own. */
void acceptor_advance(struct acceptor *acceptor, struct attempt *attempt);
/* Drops what takes too long; yields when to call it again. */
int64_t acceptor_keep_time(struct acceptor *acceptor);

/* Until it is delisted the connector's event is set when an authenticated connection comes in. */
void acceptor_enlist(struct acceptor *acceptor, struct connector *connector);
void acceptor_delist(struct acceptor *acceptor, struct connector *connector);
/* An authenticated connection to a mesh of the connector's, or NULL. */
struct attempt *acceptor_take(struct acceptor *acceptor, struct connector *connector);

/* One line of log about what is refused, at a bounded rate. */
void acceptor_log(struct acceptor *acceptor, const char *text);

#endif
