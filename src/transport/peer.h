/* peer.h - the structs that the files of this folder share: a mesh and its peers. Under the progress lock, or
 * in the thread that opens the mesh. */
#ifndef HVD_TRANSPORT_PEER_H
#define HVD_TRANSPORT_PEER_H

#include "transport/mesh.h"

#include <stdatomic.h>

#define PEER_HOST_LIMIT 64

struct connector;
struct acceptor;
struct address_record;

struct peer {
    struct mesh *mesh;
    int rank;
    unsigned reachable;                /* by which rows of transports.def, a bit each */
    int index;                         /* among the peers that the present attempt's transport reaches */
    bool neighbour;                    /* its links are opened with the mesh, on both ends */
    const struct transport *transport; /* of its links; NULL: it has none yet */
    void *state;                       /* the transport's */
    struct peer *hub; /* the same process in the hub, whose connection also serves here; or NULL */
    int watched;      /* descriptor, by mesh_watch_peer; -1: none */
    long process;     /* id, on its host */
    struct watch watch;
    char host[PEER_HOST_LIMIT];
    struct link **links; /* [channels] */
    bool linked;         /* all of them are there */
    unsigned lanes;      /* of its striped link that are there, a bit each */
    int address;         /* to which this rank has made the first of them */
    bool wanted;         /* the links are being opened */
    int64_t deadline;    /* for that; set with `wanted` */
    bool expected;       /* its end, after the shutdown handshake */
    bool lost, reported; /* reported: mesh_next_lost has returned it */
    int64_t report_at;   /* by then, see mesh_next_lost */
    hvd_status cause;    /* of the loss; before that, the last fault while connecting */
};

/* A mesh with more neighbours reports news. */
#define MESH_POLLED_NEIGHBOURS 8

/* Meshes of one hub, by number modulo this. */
#define MESH_SLOTS 1024

struct mesh {
    struct mesh *hub; /* whose pollers serve this one; itself in the first mesh of a context */
    unsigned number;
    void *owner;
    bool attached;
    bool suspended;            /* not polled: it stays armed, and news resume it */
    bool listed;               /* in the hub's `resumed` */
    struct mesh *next;         /* in its slot */
    struct mesh *next_resumed; /* in the list of the hub */
    struct mesh **slots;       /* of a hub: attached meshes, itself included */
    struct mesh *resumed;      /* of a hub: those that news have resumed */
    atomic_uint *signaled;     /* of a hub: not 0 while a peer has marked meshes with news; or NULL */
    int rank;
    int channels;
    int striped_channel; /* 0: none */
    int index;           /* this rank's among the ranks of the mesh */
    struct peer *peers;  /* ascending */
    int peer_count;
    int neighbours;                     /* number of peers that are neighbours */
    uint64_t news[MESH_NEWS_BITS / 64]; /* reported and not taken */
    struct link *awaited;               /* a list, see link_await */
    struct link **links;                /* of all peers */
    struct peer **linked;               /* the peers that have all links */
    int linked_count;
    int unreported;      /* lost peers that mesh_next_lost has not returned */
    int64_t next_report; /* of a hub: the latest report_at; CLOCK_NEVER: none */
    int64_t polled;      /* of a hub: what arrived before it was reported, while next_report is set */
    void *states[TRANSPORT_LIMIT];                 /* of the transports, by row: mesh_state */
    const struct transport *used[TRANSPORT_LIMIT]; /* that have links */
    int used_count;
    /* Descriptors of a hub, else -1. A sleeper waits for the event and for the wake-up poller, which holds
     * the other one unless that is masked: so a caller's own traffic does not wake the progress thread. */
    int event; /* mesh_wake */
    int wake_poller;
    int poller;                  /* of all that is watched; links edge-triggered */
    bool watches, watches_links; /* of a hub: anything; links, without which it is never masked */
    bool masked;
    atomic_bool asleep; /* a hint: a thread is in mesh_sleep */
    /* Members of a hub only: for connections of all its meshes, at any time. */
    const struct settings *settings;
    uint32_t generation;
    struct address_record *records; /* of all ranks of the job; constant once the hub is open */
    struct connector *connector;
    struct acceptor *acceptor;
};

struct peer *mesh_peer(const struct mesh *mesh, int rank); /* NULL: not a peer */

/* Returns its index among the peers of its mesh that the row reaches. */
int peer_index(const struct peer *peer, int row);

/* Returns the place where the transport keeps its state for the mesh. */
void **mesh_state(struct mesh *mesh, const struct transport *transport);

/* From here on the hub's poller reports what the descriptor is ready for: to transport->poll; once for each
 * change to operations->ready. False: errno. */
bool mesh_watch_peer(struct peer *peer, int fd);
bool mesh_watch_link(const struct peer *peer, int fd, struct link *link);
void peer_unwatch(struct peer *peer);

/* "rank 2 (pid 1234, host a)" */
const char *peer_text(const struct peer *peer, char *text, size_t capacity);

/* The connection has ended. `error`: an errno value, 0 for an orderly end. The first cause counts. */
void peer_lose(struct peer *peer, int error);
void peer_give_up(struct peer *peer, const hvd_status *cause); /* as peer_lose, for this reason */

/* All its links are there. False: errno. */
bool peer_linked(struct peer *peer);

/* Starts to open the further lanes of a striped link to a peer of lower rank; nothing waits for them. False:
 * this is not possible yet. */
bool peer_want_lanes(struct peer *peer, int channel);

/* The attached mesh of this number, or NULL. */
struct mesh *mesh_attached(const struct mesh *hub, unsigned number);
/* Returns the head of the list of attached meshes in which this number belongs. */
struct mesh **mesh_slot(const struct mesh *hub, unsigned number);

/* The peer's control link has news. */
void peer_report(const struct peer *peer);

/* A link of this mesh has news: if it is suspended, mesh_next_resumed returns it. */
void mesh_resume_for_news(struct mesh *mesh);

/* Peers must wake this rank when they have news of the mesh, or need not any longer. */
void mesh_set_sleeping(struct mesh *mesh, bool value);

#endif
