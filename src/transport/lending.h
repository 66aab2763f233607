/* lending.h - which memory of each other two ranks of one host can read without a copy through the ring.
 *
 * Arenas (arena.h): a rank that sends bytes of one for the first time passes its descriptor over the
 * doorbell; the peer maps it and grants that it is referred to. Any other memory: the first time a rank wants
 * it to be read directly it says where it keeps a token, and the peer tries to read that by
 * process_vm_readv(2), which Yama, seccomp, another user or another namespace may forbid. Until something is
 * granted, and where it is not, bytes are copied through the ring. Under the progress lock. */
#ifndef HVD_TRANSPORT_LENDING_H
#define HVD_TRANSPORT_LENDING_H

#include "transport/segment.h"

/* Bytes on the doorbell; that of a plain ring is zero. */
#define LENDING_OFFER 'a' /* comes with a descriptor */
#define LENDING_PROBE 'p'

#define LENDING_REGION  ((uintptr_t)2 << 20)
#define LENDING_REGIONS 128
#define LENDING_SCRATCH ((size_t)128 << 10) /* fits L2 */

struct borrowed;

/* One rank's side towards one peer. Zeroed memory is valid until the first lending. */
struct lending {
    struct ring_memory *out, *in;        /* of the first channel: what is granted is written there */
    const uint8_t *own_id, *id;          /* of the segments of this rank and of the peer */
    uint64_t offered;                    /* the newest of this process's arenas whose descriptor was sent */
    struct borrowed *borrowed;           /* the peer's arenas, the newest first */
    int readers;                         /* links with bytes of the peer's memory still to be read */
    bool refuses;                        /* one could not be mapped: no later one is granted */
    bool probed;                         /* the token's address was sent */
    uint8_t token[SEGMENT_ID_BYTES];     /* the own segment's id, in this process's own memory */
    uintptr_t readable[LENDING_REGIONS]; /* of this process: some that direct reads reach, by number */
    pid_t process;                       /* the peer's, as seen from here */
    uint8_t *scratch;                    /* for what was read directly and is computed with; or NULL */
};

/* Whether the peer has mapped the arena in which the part lies; then the reference to send. */
bool lending_refer(struct lending *lending, int doorbell, const struct iovec *part,
                   struct ring_reference *reference);
/* The bytes that the peer refers to, or NULL: it must not. */
const uint8_t *lending_resolve(const struct lending *lending, const struct ring_reference *reference);

/* Whether the peer can read any memory of this process, and this part is such: device memory is none. */
bool lending_is_readable(struct lending *lending, int doorbell, const void *data, size_t length);
/* Tries to read the peer's token, and grants or denies direct reads. */
void lending_probe(struct lending *lending, int rank, int doorbell);
/* Bytes at an address of the peer; -1 when they can't be read, by errno. */
ssize_t lending_read(const struct lending *lending, void *to, uint64_t address, size_t length);

/* Takes what the peer offers; the descriptor, -1 if it got lost, stays the caller's. */
void lending_accept(struct lending *lending, int fd);
/* Unmaps arenas that their owner has freed, unless they are being read. */
void lending_tidy(struct lending *lending);
void lending_end(struct lending *lending);

#endif
