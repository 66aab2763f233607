/* lending.h - which memory of each other two ranks of one host can read without a copy through the ring.
 *
 * Arenas: a rank that sends bytes of one for the first time passes its descriptor over the doorbell; the peer
 * maps it and grants that it is referred to. Any other memory: when it is to be read directly for the first
 * time, its rank publishes where it keeps a token, and the peer tries to read that by process_vm_readv(2),
 * which Yama, seccomp, another user or another namespace may forbid. Until something is granted, and if it
 * never is, bytes are copied through the ring. Under the progress lock. */
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
    struct ring_memory *out, *in;        /* of the first channel: there each side grants what it can read */
    const uint8_t *own_id;               /* of this rank's segment */
    const uint8_t *id;                   /* of the peer's segment */
    uint64_t offered;                    /* the newest of this process's arenas whose descriptor was sent */
    struct borrowed *borrowed;           /* the peer's arenas, the newest first */
    int readers;                         /* links with bytes of the peer's memory still to be read */
    bool refuses;                        /* one could not be mapped: no later one is granted */
    bool probed;                         /* the token's address was sent */
    uint8_t token[SEGMENT_ID_BYTES];     /* the own segment's id, in this process's own memory */
    uintptr_t readable[LENDING_REGIONS]; /* some regions of this process that direct reads reach, by number */
    pid_t process;                       /* the peer's, as seen from here */
    uint8_t *scratch;                    /* for what was read directly and is computed with; or NULL */
};

/* Returns true, and the reference to send, if the peer has mapped the arena that contains the part. */
bool lending_refer(struct lending *lending, int doorbell, const struct iovec *part,
                   struct ring_reference *reference);
/* Returns the bytes to which the peer refers; NULL: it must not refer to them. */
const uint8_t *lending_resolve(const struct lending *lending, const struct ring_reference *reference);

/* Returns true if the peer can read memory of this process directly, this part included: memory of a device
 * it can't. */
bool lending_is_readable(struct lending *lending, int doorbell, const void *data, size_t length);
/* Tries to read the peer's token, and grants or denies direct reads. */
void lending_probe(struct lending *lending, int rank, int doorbell);
/* Reads bytes at an address of the peer; -1: errno. */
ssize_t lending_read(const struct lending *lending, void *to, uint64_t address, size_t length);

/* Maps the arena that the peer offers; the descriptor, -1 if it was lost, stays the caller's. */
void lending_accept(struct lending *lending, int fd);
/* Unmaps arenas that their owner has freed, unless they are being read. */
void lending_tidy(struct lending *lending);
void lending_end(struct lending *lending);

#endif
