/* acceptor.h - the listeners of a hub, and the connections to them that no mesh has claimed yet. Those that
 * have not authenticated are bounded in number and time (net/admission.h).
 *
 * It is open for the life of the hub, so that a link can be opened at any time, and serves all its meshes:
 * the handshake names the mesh. While no rank connects it costs nothing: its descriptors are in the poller of
 * the hub's connector. An authenticated connection waits here until its mesh claims it: an attached one in
 * the hub's thread, otherwise in the thread that opens the mesh, which may start later.
 *
 * Under the progress lock, or in the thread that opens the hub; any thread may use claimants and claim. */
#ifndef HVD_TRANSPORT_ACCEPTOR_H
#define HVD_TRANSPORT_ACCEPTOR_H

#include "transport/attempt.h"

#include <pthread.h>

/* The connector of a mesh that is opened in another thread than the one that accepts. */
struct claimant {
    int event;             /* set when there is an authenticated connection, or a fault */
    hvd_status fault;      /* no descriptor to accept a connection; under the acceptor's lock */
    struct claimant *next; /* under the acceptor's lock */
};

struct acceptor {
    struct mesh *hub;
    struct admission admission;
    pthread_mutex_t lock;
    struct attempt *authenticated; /* not claimed yet */
    struct claimant *claimants;
};

void acceptor_init(struct acceptor *acceptor, struct mesh *hub, int poller);
void acceptor_close(struct acceptor *acceptor);
void acceptor_abandon(struct acceptor *acceptor); /* as mesh_abandon */

/* Accepts the connections that wait, when the poller has reported a listener. Without a descriptor for one,
 * those who open meshes fail; if nobody does, accepting is repeated after a pause. */
hvd_code acceptor_accept(struct acceptor *acceptor, hvd_status *status);
/* Continues with a connection that has not authenticated yet, when the poller has reported it. */
void acceptor_advance(struct acceptor *acceptor, struct attempt *attempt);
/* Drops connections past their time, and those to a mesh that this rank has not opened, or has closed.
 * Returns when to call it again. */
int64_t acceptor_keep_time(struct acceptor *acceptor);

/* The claimant's event is set now, for connections that have arrived already, and with each further one. */
void acceptor_add_claimant(struct acceptor *acceptor, struct claimant *claimant);
void acceptor_remove_claimant(struct acceptor *acceptor, const struct claimant *claimant);
/* Clears the claimant's event, and returns its fault. */
hvd_code acceptor_read_fault(struct acceptor *acceptor, struct claimant *claimant, hvd_status *status);

/* Returns an authenticated connection whose peer is in the mesh, or in any attached one if it is the hub;
 * NULL: there is none. Drops those whose peer does not connect in this way. */
struct attempt *acceptor_claim(struct acceptor *acceptor, struct mesh *mesh);

#endif
