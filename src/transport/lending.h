/* lending.h - two ranks of one host read each other's arenas (arena.h) in place. A rank that sends bytes of
 * an arena for the first time passes its descriptor over the doorbell; the peer maps it and grants that it is
 * referred to. Until then, and where it can't map it, bytes are copied through the ring. Driver only. */
#ifndef HVD_TRANSPORT_LENDING_H
#define HVD_TRANSPORT_LENDING_H

#include "transport/ring.h"

#define LENDING_OFFER 'a' /* the byte that a descriptor comes with; rings of the bell are zeros */

struct borrowed;

/* One rank's side towards one peer. Zeroed memory is valid until a peer is asked to read. */
struct lending {
    uint64_t offered;          /* the newest of this process's arenas that the peer was told of */
    _Atomic uint64_t *granted; /* the peer's: the newest that it has mapped */
    _Atomic uint64_t *grants;  /* this rank's likewise */
    struct borrowed *borrowed; /* the peer's arenas, the newest first */
    bool refuses;              /* one could not be mapped: no later one is granted */
};

/* Whether the peer can read the part where it lies; then the reference to send. */
bool lending_refer(struct lending *lending, int doorbell, const struct iovec *part,
                   struct ring_reference *reference);
/* The bytes that the peer refers to, or NULL: it must not. */
const uint8_t *lending_resolve(const struct lending *lending, const struct ring_reference *reference);

/* Takes what the peer offers; the descriptor, -1 if it got lost, stays the caller's. */
void lending_accept(struct lending *lending, int fd);
/* Lets go of arenas that their owner has freed, unless they are being read. */
void lending_tidy(struct lending *lending, bool reads);
void lending_end(struct lending *lending);

#endif
