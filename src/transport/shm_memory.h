/* shm_memory.h - shared memory of the ranks of one host: segments and the reservation of their pages, the
 * exchange of descriptors, arenas, and memory of one rank that another reads in place. The comment of each
 * section says which threads use it. */
#ifndef HVD_TRANSPORT_SHM_MEMORY_H
#define HVD_TRANSPORT_SHM_MEMORY_H

#include "horovod.h"
#include "net/socket.h"
#include "transport/ring.h"

/* ---- segment ---------------------------------------------------------------------------------------------
 * One rank's shared memory: its sleeping word and its outgoing rings to the ranks of its host.
 *
 * Ranks that are threads of one process use one mapping, so that ThreadSanitizer sees their races: whoever is
 * offered a segment that this process made gets that one, and the references are counted. */

#define SEGMENT_ID_BYTES 16

#define SEGMENT_SIGNAL_WORDS 16
#define SEGMENT_MARK_WORDS   4

struct segment_memory {
    /* 1 while the rank does not poll the rings: the writer exchanges the word to 0 and sends a wake-up. */
    alignas(RING_LINE) atomic_uint sleeping;
    atomic_int core; /* where the rank last began to wait, from 1 on; 0: unknown */
    bool marked;     /* constant: peers set marks */
    /* Peers that have written on channel 0, a bit each, by place in the mesh modulo the bits: set behind the
     * bytes, and before `sleeping` is checked. The rank reads a word before it checks the rings. */
    alignas(RING_LINE) _Atomic uint64_t marks[SEGMENT_MARK_WORDS];
    /* Process sets that have news for the rank, a bit each, by number modulo the bits; set before the bit in
     * `any_signaled` of the word that it lies in. */
    alignas(RING_LINE) atomic_uint any_signaled;
    _Atomic uint64_t signaled[SEGMENT_SIGNAL_WORDS];
    alignas(RING_LINE) uint8_t id[SEGMENT_ID_BYTES];
};

/* A mapping, own or a peer's. */
struct segment {
    struct segment_memory *memory;
    size_t bytes;
    int fd; /* -1 with a peer's */
    atomic_int references;
    /* Of an own segment: */
    long process; /* that made it */
    struct segment *next;
    int channels;
    size_t data_size; /* of a ring that carries data */
    bool reserved;    /* all its memory is there from the start */
};

/* Allocates that many bytes, the header included. `advice`: what an error tells the user to try. */
hvd_code segment_allocate(size_t bytes, bool reserved, const char *advice, struct segment **segment,
                          hvd_status *status);
/* Creates a segment with room for `peers` local peers, and rings of a size that suits `neighbours`; `wanted`:
 * bytes per ring of data, as in the setting. Its memory is allocated on demand if the system can do that
 * (segment_reserve). */
hvd_code segment_create(int peers, int neighbours, int channels, size_t wanted, struct segment **segment,
                        hvd_status *status);
/* Allocates the memory of the rings to a peer; unless `whole`, only what both sides read and the control
 * channel's ring. */
hvd_code segment_reserve(const struct segment *segment, int index, bool whole, hvd_status *status);
void segment_release(struct segment *segment); /* NULL is fine */
/* The descriptor is needed until the last peer has mapped the memory. */
void segment_close_fd(struct segment *segment);
/* The one behind the descriptor, which stays the caller's; NULL when it can't be mapped. */
struct segment *segment_map(int fd);

/* This rank's outgoing ring to its `index`th local peer. */
struct ring segment_ring(const struct segment *segment, int index, int channel);

/* An offer names the rings that are for a peer; the descriptor travels with it. */
size_t segment_offer_bytes(int channels);
void segment_offer(const struct segment *segment, int index, uint8_t *offer);
/* Maps the segment that a peer offers, and returns its rings, which are incoming here. `fd` stays the
 * caller's. NULL: it cannot be used. */
struct segment *segment_accept(const uint8_t *offer, int fd, struct ring *rings, int channels);

/* ---- reserve ---------------------------------------------------------------------------------------------
 * Memory of a ring on demand: its pages come piece by piece, before the writer's first byte
 * there, and go when the ring is idle. Lack of memory is an error then, not a fault later. The writer's side;
 * under the progress lock. */

struct reserve {
    uint64_t missing; /* pieces of the ring without memory, a bit each */
    uint64_t all;     /* 0: the ring has its memory from the start */
};

/* Of a ring whose bytes have no memory yet. */
struct reserve reserve_of(const struct ring *ring);

/* False, with errno: there is no memory for the next `length` bytes. */
bool reserve_next(struct reserve *reserve, const struct ring *ring, size_t length);

static inline bool reserve_is_used(const struct reserve *reserve)
{
    return reserve->missing != reserve->all;
}

/* Returns all memory to the system; false: the reader has not read everything, try again later. */
bool reserve_return(struct reserve *reserve, struct ring *ring);

/* ---- sharing ---------------------------------------------------------------------------------------------
 * Two ranks of one host give each other their memory, over the Unix socket between them:
 *
 *   offer     each -> other   its rings for the other (segment_offer), with the descriptor
 *   verdict   each -> other   1: mapped it, 0: can't
 *
 * Only when both say 1 do they share memory; else both know that they do not. Never blocks. */

struct sharing {
    struct stream stream; /* first, see read_with_fd */
    int channels;
    int fd_out, fd_in; /* of the own segment, until it was sent; of the other's, once received */
    bool judged;       /* the verdict on the other's offer is on its way */
    struct segment *segment;
    struct ring *rings;
};

/* `own` may be NULL: then the outcome is no. NULL when memory is out. */
struct sharing *sharing_create(const struct segment *own, int index, int channels);
void sharing_free(struct sharing *sharing);
/* Continues the exchange. HVD_IN_PROGRESS: call again after stream_events. HVD_OK: segment and rings are the
 * other rank's. HVD_UNSUPPORTED: one of the two ranks cannot share memory. */
hvd_code sharing_advance(struct sharing *sharing, int socket, hvd_status *status);

/* ---- arena -----------------------------------------------------------------------------------------------
 * Memory of this process that the other ranks of its host can map and read in place: segments of
 * their own for the user's tensors. They belong to the process, not to a context. Any thread. */

/* The arena that holds all of these bytes, and where; false when there is none. */
bool arena_find(const void *data, size_t length, struct ring_reference *reference);

/* A copy of the descriptor of the oldest arena after `serial`, and its own serial; -1: there is none. */
int arena_descriptor(uint64_t after, uint64_t *serial);

/* Returns the serial number in the head of a peer's arena; 0: the mapping is too small to be an arena. */
uint64_t arena_serial(const struct segment *segment);
bool arena_is_freed(const struct segment *segment);

/* ---- lending ---------------------------------------------------------------------------------------------
 * Which memory of each other two ranks of one host can read without a copy through the ring.
 *
 * Arenas: a rank that sends bytes of one for the first time passes its descriptor over the
 * doorbell; the peer maps it and grants that it is referred to. Any other memory: the first time a rank wants
 * it to be read directly it says where it keeps a token, and the peer tries to read that by
 * process_vm_readv(2), which Yama, seccomp, another user or another namespace may forbid. Until something is
 * granted, and where it is not, bytes are copied through the ring. Under the progress lock. */

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

/* Whether the peer has mapped the arena that contains the part; then the reference to send. */
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
