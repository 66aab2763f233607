/* segment.h - one rank's shared memory: the words by which its peers wake it, and its outgoing rings to the
 * ranks of its host. A peer maps it. The thread that opens the mesh, or under the progress lock; any thread
 * may allocate, map and release one.
 *
 * Ranks that are threads of one process use one mapping, so that ThreadSanitizer sees their races: a rank
 * that is offered a segment that this process made gets that one, and the references are counted. */
#ifndef HVD_TRANSPORT_SEGMENT_H
#define HVD_TRANSPORT_SEGMENT_H

#include "horovod.h"
#include "transport/ring.h"

#define SEGMENT_ID_BYTES 16

#define SEGMENT_SIGNAL_WORDS 16
#define SEGMENT_MARK_WORDS   4

struct segment_memory {
    /* 1 while the rank does not poll the rings: the writer exchanges the word to 0 and sends a wake-up. */
    alignas(RING_LINE) atomic_uint sleeping;
    atomic_int core; /* on which the rank last started to wait, counted from 1; 0: unknown */
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

/* A mapping of this rank's own memory, or of a peer's. */
struct segment {
    struct segment_memory *memory;
    size_t bytes;
    int fd; /* -1: it is a peer's */
    atomic_int references;
    /* Only of an own segment: */
    long process;         /* the one that made it */
    struct segment *next; /* under atfork_lock */
    int channels;
    size_t data_size; /* of a ring that carries data */
    bool reserved;    /* all its memory is there from the start */
};

/* Allocates that many bytes, the header included. `advice`: what an error suggests to the user. */
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
/* Maps the segment of the descriptor, which stays the caller's; NULL: it can't be mapped. */
struct segment *segment_map(int fd);

/* Returns this rank's outgoing ring to its `index`th local peer. */
struct ring segment_ring(const struct segment *segment, int index, int channel);

/* An offer names the rings that are for a peer; the descriptor travels with it. */
size_t segment_offer_bytes(int channels);
void segment_offer(const struct segment *segment, int index, uint8_t *offer);
/* Maps the segment that a peer offers, and returns its rings, which are incoming here. `fd` stays the
 * caller's. NULL: it cannot be used. */
struct segment *segment_accept(const uint8_t *offer, int fd, struct ring *rings, int channels);

#endif
