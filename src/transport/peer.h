/* peer.h - what the files of this folder share: a mesh and its peers. */
#ifndef HVD_TRANSPORT_PEER_H
#define HVD_TRANSPORT_PEER_H

#include "transport/lending.h"
#include "transport/mesh.h"
#include "transport/segment.h"

#define PEER_HOST_LIMIT 64

struct peer {
    struct mesh *mesh;
    struct peer *hub; /* the same process in the hub, whose doorbell and lending serve here, too; or NULL */
    int rank;
    enum transport transport; /* once the links are there */
    long process;             /* id, on its host */
    char host[PEER_HOST_LIMIT];
    struct link **links;     /* [channels] */
    int doorbell;            /* Unix socket to a peer of this host; -1: it has none, or the hub's */
    struct segment *segment; /* its memory, mapped here, or NULL */
    struct path path;        /* of bytes to it */
    struct stores received;  /* from its arenas into memory here that it may have read in place */
    struct stores reduced;   /* likewise, what was computed from them */
    struct lending lending;  /* whose memory the one sees of the other */
    int local_index;         /* place among the peers of this host, or -1 */
    bool expected;           /* its end, after the shutdown handshake */
    bool lost, told;         /* told: mesh_next_lost has returned it */
    hvd_status cause;        /* of the loss; before that, the last fault while connecting */
};

/* Meshes of one hub, by number modulo this. */
#define MESH_SLOTS (SEGMENT_RUNG_WORDS * 64)

struct mesh {
    struct mesh *hub; /* whose pollers serve this one; itself in the first mesh of a context */
    unsigned number;
    void *owner;
    bool attached;
    bool suspended;            /* not polled: its `sleeping` stays set, and news resume it */
    bool listed;               /* in the hub's `resumed` */
    struct mesh *next;         /* in its slot */
    struct mesh *next_resumed; /* in the list of the hub */
    struct mesh **slots;       /* of a hub: attached meshes, itself included */
    struct mesh *resumed;      /* of a hub: those that news have resumed */
    int rank;
    int channels;
    struct peer *peers; /* ascending */
    int peer_count;
    enum path_rule path_rule;
    struct segment *segment;   /* this rank's memory for its local peers, or NULL */
    int untold;                /* lost peers that mesh_next_lost has not returned */
    bool has[TRANSPORT_COUNT]; /* links of this transport */
    /* Descriptors of a hub, else -1. A sleeper waits for `bell`, which holds the event, the doorbells, and,
     * while armed, `sockets`; so a driving thread's own traffic does not wake it. */
    int event;   /* mesh_wake */
    int bell;    /* poller */
    int sockets; /* poller of the TCP links, edge-triggered */
};

struct peer *mesh_peer(const struct mesh *mesh, int rank); /* NULL: not a peer */

/* "rank 2 (pid 1234, host a)" */
const char *peer_text(const struct peer *peer, char *text, size_t capacity);

/* The connection has ended. `error`: an errno value, 0 for an orderly end. The first cause counts. */
void peer_lose(struct peer *peer, int error);

/* A link of this mesh has news: if it is suspended, mesh_next_resumed returns it. */
void mesh_resume_for_news(struct mesh *mesh);

/* shm.c: all links of a peer whose memory is mapped and whose doorbell is set; `rings`: those that
 * come in. */
hvd_code shm_open_links(struct peer *peer, const struct ring *rings, hvd_status *status);
void shm_poll(struct peer *peer);
/* Whether rings to the peer have memory that they can return; and to do so: see mesh_return_memory. */
bool shm_holds_memory(const struct peer *peer);
bool shm_return_memory(const struct peer *peer);

/* tcp.c: takes over the connected socket, also on failure. */
hvd_code tcp_open_link(struct peer *peer, int channel, int fd, hvd_status *status);
/* From here on the hub's poller reports its news. False: errno. */
bool tcp_listen(struct link *link);
void tcp_poll(struct mesh *hub);

#endif
