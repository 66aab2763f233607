/* ring.h - a byte stream in shared memory from one writer to one reader, without locks. One thread at a time
 * on each side.
 *
 * Head and tail count bytes and only grow; each is written by one side and has cache lines of its own.
 * Whatever the other side writes there, no access leaves the ring. Messages start at multiples of
 * RING_ALIGNMENT, so elements of 1, 2, 4, 8 or 16 bytes never cross the ring's end.
 *
 * Some bytes of the stream may be in other memory: then a slot holds their address, and the ring's own bytes
 * at these positions have no meaning. A slot is free again once its bytes were read. */
#ifndef HVD_TRANSPORT_RING_H
#define HVD_TRANSPORT_RING_H

#include "transport/path.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define RING_ALIGNMENT 64
#define RING_LINE      128 /* two cache lines: processors fetch them in pairs */
#define RING_GRAIN     16  /* the largest element; writing pauses only at multiples of it */
#define RING_SLOTS     16

/* Where bytes of the stream are: in an arena (arena.h), or, if that is 0, at an address of the writer.
 */
struct ring_reference {
    uint64_t arena, offset, length;
};

/* Whether the reader can read the writer's memory directly (lending.h). */
enum ring_access { RING_ACCESS_UNKNOWN, RING_ACCESS_GRANTED, RING_ACCESS_DENIED };

struct ring_slot {
    _Atomic uint64_t stamp; /* 1 + the position of its first byte; written last */
    _Atomic uint64_t arena, offset, length;
};

struct ring_memory {
    alignas(RING_LINE) _Atomic uint64_t head;    /* bytes written; the writer's */
    atomic_bool revoked;                         /* the writer's: bytes elsewhere are no longer valid */
    alignas(RING_LINE) _Atomic uint64_t tail;    /* bytes read; the reader's */
    alignas(RING_LINE) atomic_uint wants_room;   /* set by a writer before it sleeps */
    alignas(RING_LINE) _Atomic uint64_t granted; /* the reader's: the newest of the writer's arenas it sees */
    _Atomic unsigned access;                     /* the reader's: enum ring_access */
    alignas(RING_LINE) _Atomic uint64_t probe; /* the writer's: where its process has the id of its segment */
    alignas(RING_LINE) struct ring_slot slots[RING_SLOTS];
    alignas(RING_LINE) uint8_t bytes[];
};

/* The view of one side, the writer's or the reader's. */
struct ring {
    struct ring_memory *memory;
    size_t size;           /* a power of two, at least RING_ALIGNMENT */
    uint64_t mine;         /* head for the writer, tail for the reader */
    uint64_t theirs;       /* the other one, as last seen */
    unsigned slots;        /* used so far */
    struct stores *stores; /* the writer's, or NULL */
};

static inline size_t ring_bytes(size_t size)
{
    return sizeof(struct ring_memory) + size;
}

/* The writer's. */
size_t ring_room(struct ring *ring); /* reads the reader's progress */
/* Copies as much of one part as fits, at most `length`, and publishes it to the reader. */
size_t ring_write(struct ring *ring, const void *bytes, size_t length);
/* Puts a reference to the stream's next bytes into a slot; false: no slot is free. */
bool ring_refer(struct ring *ring, const struct ring_reference *reference);
void ring_end_write(struct ring *ring);

/* The reader's. */
size_t ring_available(struct ring *ring); /* reads the writer's progress */
bool ring_is_empty(const struct ring *ring);
/* Returns true if the next bytes are elsewhere, and where. Once for each such piece, before ring_view. */
bool ring_follow(struct ring *ring, struct ring_reference *reference);
/* Returns the next bytes in place, at most `limit`, up to the end of the ring or to bytes in other memory. */
size_t ring_view(struct ring *ring, const void **bytes, size_t limit);
void ring_consume(struct ring *ring, size_t length);
void ring_end_read(struct ring *ring);

#endif
