/* transport.h - links, which move bytes between two ranks, and the transports that set them up.
 *
 * A link joins this rank and one peer on one channel: an ordered, reliable stream of bytes each way. Every
 * process set has its own links: channel 0 carries the coordination, the others data (engine/comm.h). Both
 * ends know from the decisions of the coordinator which bytes follow, so data travel without headers, as
 * messages whose length both sides know.
 *
 * Nothing here blocks except mesh_open, mesh_sleep and mesh_close. Links and the mesh are used by one thread
 * at a time, the one that makes progress; only mesh_wake may be called from any thread. */
#ifndef HVD_TRANSPORT_TRANSPORT_H
#define HVD_TRANSPORT_TRANSPORT_H

#include "horovod.h"
#include "net/addresses.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct stores;
struct mesh;
struct link;

/* What a link can do: a constant table of its transport.
 * Functions that return ssize_t return the bytes moved, 0 when nothing can move now, -1 when the link is
 * broken (the mesh then reports the peer as lost). */
struct link_operations {
    /* Sends bytes of the current outgoing message from the parts, in order. If the peer views the message,
     * every call except the last of a message passes whole elements. */
    ssize_t (*send)(struct link *link, const struct iovec *parts, int count);
    /* The current outgoing message is complete. */
    void (*end_send)(struct link *link);
    /* Fills the parts, in order, with bytes of the current incoming message. The parts never reach past its
     * end. */
    ssize_t (*receive)(struct link *link, const struct iovec *parts, int count);
    /* Shows up to `limit` next bytes of the incoming message in place, aligned to 16 bytes at the message's
     * start and contiguous (lent bytes: as the peer's tensor is); *data stays valid until consume. `limit` is
     * no more than the message has left. */
    ssize_t (*view)(struct link *link, const void **data, size_t limit);
    /* Drops n viewed bytes. False: they had been changed meanwhile, and the link is broken. */
    bool (*consume)(struct link *link, size_t n);
    /* Returns true if receive and view would find nothing, for checks in each turn of progress: they cost
     * more. NULL: unknown. */
    bool (*is_empty)(const struct link *link);
    /* The current incoming message was received to its end. */
    void (*end_receive)(struct link *link);
    /* Returns true if the peer has read all bytes up to `lent`. NULL, as `revoke`, if the transport never
     * lends memory. */
    bool (*taken)(struct link *link, uint64_t lent);
    /* Revokes lent memory, which will now change: a peer that still reads it must discard what it has read.
     * The link cannot be used afterwards. */
    void (*revoke)(struct link *link);
    /* Returns true if the peer's host has received all that was sent. NULL: always. */
    bool (*is_delivered)(const struct link *link);
    /* For the mesh: returns true if what want_read and want_write ask for is there. Called after the mesh was
     * armed, so later news wake it. */
    bool (*news)(struct link *link);
    /* For the mesh: the descriptor that mesh_watch_link watches is ready (POLLER_READ, ...). */
    void (*ready)(struct link *link, unsigned what);
};

/* The watch of a descriptor in the hub's poller: called with what it is ready for (POLLER_READ, ...). */
struct watch {
    void (*ready)(void *owner, unsigned what);
    void *owner;
};

/* Common head of every transport's own link struct. */
struct link {
    const struct link_operations *operations;
    struct mesh *mesh; /* NULL: it is in none */
    int peer;          /* rank */
    int channel;
    /* Set by the user of the link, before link_await: what mesh_arm checks for. */
    bool want_read;         /* incoming bytes */
    bool want_write;        /* room to send */
    bool awaited;           /* it is in the mesh's list */
    bool lends;             /* set before send: the peer may read the parts later, in place */
    uint64_t want_taken;    /* the position up to which the peer must have read; 0: not wanted */
    size_t batch_bytes;     /* set before send: the length of the batch that it serves */
    struct stores *storing; /* set by view: for storing what is computed from the bytes; or NULL */
    uint64_t lent;          /* the link's: where the last lent bytes end in the stream; 0: none */
    struct link *next_awaited;
    struct watch watch; /* by mesh_watch_link */
};

/* mesh_arm checks the link for as long as anything is wanted. */
void link_await(struct link *link);

static inline ssize_t link_send(struct link *link, const struct iovec *parts, int count)
{
    return link->operations->send(link, parts, count);
}

static inline ssize_t link_receive(struct link *link, const struct iovec *parts, int count)
{
    return link->operations->receive(link, parts, count);
}

static inline bool link_is_empty(const struct link *link)
{
    return link->operations->is_empty && link->operations->is_empty(link);
}

/* ---- transports --------------------------------------------------------------------------------------- */

struct mesh_config;
struct peer;

#define TRANSPORT_LIMIT     8
#define TRANSPORT_ADDRESSES 768 /* bytes of a rank's addresses, as text */

/* What a rank listens on, for one transport. */
struct listeners {
    int fds[ADDRESSES_LIMIT], count;
    char addresses[TRANSPORT_ADDRESSES]; /* where peers reach it: one a line, the best first */
};

/* One transport: a constant table in a file of its own, and a row in transports.def. What is NULL is not
 * needed.
 *
 * Set-up is the same for all (mesh_open.c, connector.c): every rank listens for all its meshes and
 * publishes its addresses for each transport; of two ranks the higher one dials, by the first row that
 * reaches the other, its addresses side by side, and the lower one accepts; the handshake authenticates both
 * ends of each connection; the first to complete it wins; the transport negotiates what else it needs, and
 * opens the links. When dialling or negotiating fails, the next row is tried. */
struct transport {
    const char *name;  /* for HOROVOD_TRANSPORT */
    const char *needs; /* for an error: "both ranks on one system" */
    /* Each channel has a connection of its own, and dialling is repeated until it succeeds; otherwise one
     * connection carries all channels. */
    bool connection_per_channel;
    /* Its connections may leave the host, and are encrypted where the settings ask for that. */
    bool encrypts;

    /* Set-up, in the thread of mesh_open. Sockets are non-blocking; -1 comes with errno. The hub listens,
     * into zeroed listeners; on an error those of fds[0 ... count) are closed. */
    hvd_code (*listen)(struct mesh *mesh, const struct mesh_config *config, struct listeners *listeners,
                       hvd_status *status);
    bool (*reachable)(const char *mine, const char *theirs); /* symmetric; both have published */
    int (*dial)(const char *address);                        /* the first line */
    int (*accept)(int listener, char who[SOCKET_TEXT]);      /* EPERM: of another user, refused */
    /* From where this host reaches the first line, as addresses_route. NULL: no link is striped. */
    bool (*route)(const char *address, struct route *route);
    /* Which peers this row reaches is known by now. After an error no negotiation succeeds, and the next rows
     * are used. */
    hvd_code (*prepare)(struct mesh *mesh, int row, hvd_status *status);
    /* Over the authenticated connection; *state is NULL at first, and what this keeps. HVD_IN_PROGRESS: to
     * be called again after `events`; HVD_UNSUPPORTED: it does not work, and the other end has been informed.
     */
    hvd_code (*negotiate)(struct peer *peer, int connection, void **state, hvd_status *status);
    short (*events)(const void *state);
    void (*discard)(void *state);
    /* Fills peer->links, all or that of the channel, or adds a lane to a striped one; the connection's number
     * as in link_dial.h. Takes ownership of connection and `tls` (NULL: it is plain), also on failure. */
    hvd_code (*open)(struct peer *peer, int number, int connection, struct tls *tls, void *state,
                     hvd_status *status);

    /* In use, under the progress lock. `dial` to `attach` may also happen at any time then. */
    bool (*attach)(struct peer *peer);        /* to the hub: mesh_watch_peer, mesh_watch_link; false: errno */
    void (*poll)(struct peer *peer);          /* the descriptor that mesh_watch_peer watches is ready */
    void (*collect_marks)(struct mesh *mesh); /* mesh_report for what `ready` does not report */
    void (*arm)(struct mesh *mesh, bool armed); /* whether peers that have news must wake this rank */
    void (*resume_signaled)(struct mesh *hub);  /* resumes the meshes that hub->signaled names */
    /* See mesh_return_memory. */
    bool (*holds_memory)(const struct peer *peer);
    bool (*return_memory)(struct peer *peer);
    char (*process_state)(const struct peer *peer);
    /* See mesh_find_broken; `path` says between which addresses. */
    bool (*find_broken)(struct peer *peer, unsigned limit, char *path, size_t capacity);
    /* Returns true if nothing that a lost peer sent on channel 0 can still arrive. NULL: all of it has
     * arrived. */
    bool (*is_drained)(const struct peer *peer);
    /* Any thread: the core on which the peer last started to wait, -1: unknown; and the same of this rank. */
    int (*core)(const struct peer *peer);
    void (*set_core)(struct mesh *mesh, int core);

    /* The end. Of what `open` has made: channel 0 is closed first, by it the peer sees that this was meant.
     */
    void (*close_peer)(struct peer *peer);
    void (*close_mesh)(struct mesh *mesh); /* after all peers; whatever of the set-up has happened */
    void (*abandon)(struct peer *peer);    /* in the child after fork: closes the descriptors only */
};

#define TRANSPORT(name) extern const struct transport transport_##name;
#include "transport/transports.def"
#undef TRANSPORT

/* The rows, best first; NULL after the last. */
const struct transport *transport_at(int row);
/* One more row, last: for a program of its own, before any mesh is opened. */
void transport_add(const struct transport *transport);

#endif
