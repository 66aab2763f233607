/* transport.h - what moves bytes between two ranks.
 *
 * A link joins this rank and one peer on one channel: an ordered, reliable stream of bytes each way. Every
 * process set has links of its own: channel 0 carries the coordination, the others data (engine/comm.h). Both
 * ends know from the decisions of the coordinator which bytes come next, so data travel without headers, as
 * messages whose length both sides know.
 *
 * Nothing here blocks except mesh_open, mesh_sleep and mesh_close. Links and the mesh are used by one thread
 * at a time, the one that drives progress; only mesh_wake may be called from any thread. */
#ifndef HVD_TRANSPORT_TRANSPORT_H
#define HVD_TRANSPORT_TRANSPORT_H

#include "horovod.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct stores;
struct link;

/* One transport: a constant table of functions in a file of its own, and a row in transports.def.
 * Functions that return ssize_t yield the bytes moved, 0 when nothing can move now, -1 when the link is
 * broken (the mesh then reports the peer as lost). */
struct link_operations {
    /* Takes bytes of the current outgoing message from the parts, in order. */
    ssize_t (*send)(struct link *link, const struct iovec *parts, int count);
    /* The current outgoing message is complete. */
    void (*end_send)(struct link *link);
    /* Fills the parts, in order, with bytes of the current incoming message. The parts never reach past its
     * end. */
    ssize_t (*receive)(struct link *link, const struct iovec *parts, int count);
    /* Shows up to `limit` next bytes of the incoming message in place, aligned to 16 bytes at the message's
     * start and contiguous (lent bytes: as the peer's tensor is); *data stays valid until consume. Asks for
     * no more than the message has left. */
    ssize_t (*view)(struct link *link, const void **data, size_t limit);
    /* Drops n viewed bytes. False: they had been changed meanwhile, and the link is broken. */
    bool (*consume)(struct link *link, size_t n);
    /* The current incoming message was received to its end. */
    void (*end_receive)(struct link *link);
    /* Whether the peer has read all up to `lent`. NULL, as the next one, where nothing is ever lent. */
    bool (*taken)(struct link *link, uint64_t lent);
    /* What is lent changes from now on: whoever still reads it must not use it. The link is of no use then.
     */
    void (*revoke)(struct link *link);
    /* For the mesh: is there what want_read and want_write ask for? Called after the peers were told to ring,
     * so what comes later rings. */
    bool (*news)(struct link *link);
    void (*close)(struct link *link); /* frees the link; its connection is closed already, or closed here */
    /* In the child after fork: closes the descriptors only. */
    void (*abandon)(struct link *link);
};

enum transport {
#define TRANSPORT(name) TRANSPORT_##name,
#include "transport/transports.def"
#undef TRANSPORT
    TRANSPORT_COUNT
};

#define TRANSPORT(name) extern const struct link_operations transport_##name;
#include "transport/transports.def"
#undef TRANSPORT

/* Common head of every transport's own link struct. */
struct link {
    const struct link_operations *operations;
    int peer; /* rank */
    int channel;
    bool want_read;     /* set by the user of the link: mesh_arm looks for incoming bytes only where wanted */
    bool want_write;    /* likewise for room to send */
    bool lends;         /* set before send: the peer may read the parts later, where they lie */
    size_t batch_bytes; /* set before send, receive and view: of the job that the bytes belong to */
    struct stores *storing; /* set by view: for storing what is computed from the bytes; or NULL */
    uint64_t lent;          /* the link's: where the last lent bytes end in the stream; 0: none */
    uint64_t want_taken; /* set by the user: mesh_arm looks whether the peer has come so far; 0: not wanted */
};

static inline ssize_t link_send(struct link *link, const struct iovec *parts, int count)
{
    return link->operations->send(link, parts, count);
}

static inline ssize_t link_receive(struct link *link, const struct iovec *parts, int count)
{
    return link->operations->receive(link, parts, count);
}

#endif
