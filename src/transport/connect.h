/* connect.h - how two ranks come to be connected: attempts at connections, the acceptor, the connector, and
 * the network paths of a striped link. mesh_open.c says in which order a mesh uses them. */
#ifndef HVD_TRANSPORT_CONNECT_H
#define HVD_TRANSPORT_CONNECT_H

#include "base/clock.h"
#include "net/handshake.h"
#include "transport/mesh_open.h"
#include "transport/peer.h"

#include <pthread.h>

/* ---- attempt ---------------------------------------------------------------------------------------------
 * One connection between two ranks on its way to become links: it connects, authenticates both
 * ends, and negotiates what its transport needs. Never blocks. One thread at a time. */

enum attempt_stage {
    ATTEMPT_PAUSED,     /* to be tried again at `since` */
    ATTEMPT_CONNECTING, /* only those that this rank began */
    ATTEMPT_SHAKING,
    ATTEMPT_PROVEN, /* accepted and authenticated: its mesh takes it with attempt_identify */
    ATTEMPT_NEGOTIATING,
    ATTEMPT_FAILED, /* at this address; others are tried */
    ATTEMPT_ENDED
};

struct attempt {
    enum attempt_stage stage;
    int row; /* of its transport */
    int fd;
    int poller;     /* that reports the descriptor; -1: none */
    short watched;  /* for this */
    bool initiator; /* this rank began */
    int64_t since;
    struct mesh *mesh; /* the hub until the one that it names has taken it */
    struct peer *peer; /* NULL: not known yet */
    int number;        /* of the connection, see below; 0 where one stands for all */
    int address;       /* of those of the peer, by address_record_get */
    int64_t next_due;  /* when the next address is tried as well; CLOCK_NEVER: it has been */
    hvd_code code;     /* how it ended last, with this outcome; HVD_OK: it has not */
    char outcome[160];
    struct handshake handshake;
    void *state; /* of the negotiation */
    struct attempt *next;
};

/* Connections to a peer are numbered: lane * channels + channel. Lane 0 is the whole link; of a striped one,
 * lane 1 is opened as lane 0 would be, and the further ones are opened once it has moved much. Only the end
 * that dials decides whether and how a link is striped. */
static inline int connection_channel(const struct attempt *attempt)
{
    return attempt->number % attempt->mesh->channels;
}

static inline int connection_lane(const struct attempt *attempt)
{
    return attempt->number / attempt->mesh->channels;
}

/* Takes over `fd`, of `who`; NULL when memory is out. */
struct attempt *attempt_accept(struct mesh *hub, int row, int fd, const char *who);
struct attempt *attempt_for_peer(struct peer *peer, int row, int number, int address);
void attempt_free(struct attempt *attempt);

/* Begins, or begins again, at its address of the peer. HVD_IN_PROGRESS, or the fault. */
hvd_code attempt_connect(struct attempt *attempt, hvd_status *status);
/* NULL: the peer has not so many. */
const char *attempt_address(const struct attempt *attempt, int index);
/* Closes its connection and keeps the outcome. */
void attempt_fail(struct attempt *attempt, hvd_code code, const hvd_status *fault);
/* "10.0.0.2 port 4242 (from 10.0.0.1): Connection refused" */
void attempt_append_outcome(const struct attempt *attempt, char *text, size_t capacity);

/* HVD_IN_PROGRESS; HVD_OK: it is proven, or ready to become links; HVD_PEER_LOST: another attempt may help;
 * HVD_UNSUPPORTED: this transport does not work, another may. */
hvd_code attempt_advance(struct attempt *attempt, hvd_status *status);

/* Finds the peer of a proven attempt in the mesh that it names. */
hvd_code attempt_identify(struct attempt *attempt, struct mesh *mesh, hvd_status *status);

/* The poller reports the attempt when it can be advanced; false: errno. Without a descriptor nothing. */
bool attempt_watch(struct attempt *attempt, int poller);
void attempt_unwatch(struct attempt *attempt);

/* ---- acceptor --------------------------------------------------------------------------------------------
 * The listeners of a hub and the connections to them that have not authenticated yet.
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

struct connector;

#define ACCEPTOR_LISTENERS (TRANSPORT_LIMIT * ADDRESSES_LIMIT)

struct acceptor {
    struct mesh *hub;
    int poller; /* its tags: attempts; NULL: a listener */
    struct {
        int fd, row;
    } listeners[ACCEPTOR_LISTENERS];
    int listener_count;
    struct attempt *attempts; /* unauthenticated, the newest first */
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

/* Takes over a listener of a row. */
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

/* ---- connector -------------------------------------------------------------------------------------------
 * Connections of meshes on their way to become links. Of two ranks the higher one connects, the
 * lower one accepts. No order of arrival can block another, and nothing blocks but
 * connector_run.
 *
 * The hub has one for its life, whose poller is in the hub's; it is used under the progress lock. Another
 * mesh has one while it is opened, for the thread that opens it. */

struct connector {
    struct mesh *mesh;
    int poller, event;                /* event: of another mesh than the hub, else -1 */
    struct watch watch;               /* of the hub's: for the poller */
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
void connector_turn_logged(struct connector *connector); /* likewise, of a hub's; a fault goes to the log */
/* From here on the hub's poller reports the connector. False: errno. */
bool connector_watch(struct connector *connector);

/* ---- rails -----------------------------------------------------------------------------------------------
 * The network paths to a peer which leave this host by different interfaces, and the lanes of a striped link
 * that go over them. */

/* The sockets over which messages of the channel go; 1: the link is not striped. */
int rails_lanes(const struct peer *peer, int row, int channel);

/* By address_record_get, the peer's address for a lane behind the first, which is open. */
int rails_address(const struct peer *peer, int row, int lane);

#endif
