/* connect.h - how two ranks come to be connected. Of two ranks the higher one dials and the lower one
 * accepts; the handshake authenticates both; the transport negotiates what else it needs, and its links are
 * opened. mesh_open.c says in which order a mesh uses the parts:
 *
 *   attempt    one connection on its way to become links
 *   lanes      the network paths over which a long link is striped
 *   acceptor   the listeners of a hub, and the connections that no mesh has claimed yet
 *   connector  what a mesh dials, and what it negotiates
 *
 * Nothing blocks except connector_run. */
#ifndef HVD_TRANSPORT_CONNECT_H
#define HVD_TRANSPORT_CONNECT_H

#include "base/clock.h"
#include "net/admission.h"
#include "net/dial.h"
#include "net/handshake.h"
#include "transport/mesh_open.h"
#include "transport/peer.h"

#include <pthread.h>

/* ---- attempt ------------------------------------------------------------------------------------------ */

enum attempt_stage {
    ATTEMPT_CONNECTING, /* only of those that this rank dials */
    ATTEMPT_SHAKING,
    ATTEMPT_PROVEN, /* accepted and authenticated: the mesh that it names claims it */
    ATTEMPT_NEGOTIATING,
    ATTEMPT_ENDED
};

struct attempt {
    struct candidate candidate; /* the tag of the poller */
    enum attempt_stage stage;
    int row; /* of its transport */
    struct newcomer newcomer;
    int64_t since;     /* accepted and authenticated */
    struct mesh *mesh; /* the hub until the mesh that it names has claimed it */
    struct peer *peer; /* NULL: not known yet */
    int number;        /* of the connection: lane * channels + channel; 0 if one connection carries all */
    struct handshake handshake;
    void *state; /* of the negotiation */
    struct attempt *next;
};

void attempt_free(struct attempt *attempt); /* NULL is fine */

/* ---- acceptor --------------------------------------------------------------------------------------------
 * The listeners of a hub and the connections to them that have not authenticated yet (net/admission.h).
 *
 * It is open for the life of the hub, so that a link can be opened at any time, and serves all its meshes:
 * the handshake names the mesh. While no rank connects it costs nothing: its descriptors are in the poller of
 * the hub's connector. An authenticated connection waits here until the connector of its mesh claims it: the
 * hub's for attached meshes, otherwise that of the thread that opens the mesh, which may start later.
 *
 * Under the progress lock, or in the thread that opens the hub. acceptor_enlist, acceptor_delist and
 * acceptor_claim: any thread. */

struct connector;

struct acceptor {
    struct mesh *hub;
    struct admission admission;
    pthread_mutex_t lock;
    struct attempt *authenticated; /* not claimed yet */
    struct connector *connectors;  /* of meshes that are being opened */
};

void acceptor_init(struct acceptor *acceptor, struct mesh *hub, int poller);
void acceptor_close(struct acceptor *acceptor);
void acceptor_abandon(struct acceptor *acceptor); /* as mesh_abandon */

/* An authenticated connection to a mesh of the connector's, or NULL. */
struct attempt *acceptor_claim(struct acceptor *acceptor, struct connector *connector);

/* ---- connector -------------------------------------------------------------------------------------------
 * Connections of meshes on their way to become links. No order of arrival can block another.
 *
 * The hub has one for its life, whose poller is in the hub's; it is used under the progress lock. Another
 * mesh has one while it is opened, for the thread that opens it. */

struct connector {
    struct mesh *mesh;
    int poller, event;                /* event: of another mesh than the hub, otherwise -1 */
    struct watch watch;               /* of the hub's: for the poller */
    struct link_dial *dials;          /* what this rank dials */
    struct attempt *attempts;         /* accepted by this rank and claimed */
    int64_t next;                     /* when it needs a turn even if nothing arrives */
    const struct mesh_config *config; /* while connector_run runs, otherwise NULL */
    int64_t next_heartbeat;        /* of connector_run: when to ask whether a peer has failed; 0: not yet */
    struct connector *next_listed; /* under the acceptor's lock */
    hvd_status fault;              /* under the acceptor's lock: no descriptor to accept a connection */
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
