/* shm_link.h - the links to one peer on this host: its doorbell, its memory, and a ring each way for each
 * channel. Under the progress lock. */
#ifndef HVD_TRANSPORT_SHM_LINK_H
#define HVD_TRANSPORT_SHM_LINK_H

#include "transport/lending.h"
#include "transport/path.h"
#include "transport/peer.h"
#include "transport/reserve.h"

/* The state of this transport for one mesh. */
struct shm_mesh {
    struct segment *segment; /* this rank's memory for its local peers, or NULL */
    size_t ring_bytes;       /* as in the setting */
    int peers, linked;       /* on this host, and those that have links */
    enum path_rule path_rule;
};

struct shm_link {
    struct link link;
    struct shm_peer *peer;
    struct ring out, in;
    const uint8_t *borrowed; /* the next bytes, in the peer's memory; NULL: it is not mapped here */
    uint64_t address;        /* otherwise: their address in the peer's process */
    size_t borrowed_left;    /* 0: they are in the ring */
    size_t unusable;         /* bytes that the last view showed and that were too few to use */
    struct reserve reserve;  /* of `out` */
};

struct shm_peer {
    struct peer *peer;
    struct shm_peer *hub;    /* its doorbell and lending serve here: the same process in the hub, or itself */
    int doorbell;            /* Unix socket; -1: the hub's serves */
    struct segment *segment; /* its memory, mapped here */
    struct path path;        /* of bytes to it */
    struct stores received;  /* from its arenas into memory here that it may have read in place */
    struct stores reduced;   /* results computed from them, stored there */
    struct lending lending;  /* which memory one sees of the other */
    struct shm_link links[]; /* [channels] */
};

extern const struct link_operations shm_link_operations;

#endif
