/* ring.h - a byte stream in shared memory from one writer to one reader, without locks.
 *
 * Head and tail count bytes and only grow; each is written by one side and lies in cache lines of its own.
 * Whatever the other side writes there, no access leaves the ring. Messages start at multiples of
 * RING_ALIGNMENT, so elements of 1, 2, 4, 8 or 16 bytes never lie across the ring's end. */
#ifndef HVD_TRANSPORT_RING_H
#define HVD_TRANSPORT_RING_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define RING_ALIGNMENT 64
#define RING_LINE      128 /* two cache lines: processors fetch them in pairs */

struct ring_memory {
    alignas(RING_LINE) _Atomic uint64_t head;  /* bytes written; the writer's */
    alignas(RING_LINE) _Atomic uint64_t tail;  /* bytes read; the reader's */
    alignas(RING_LINE) atomic_uint wants_room; /* set by a writer before it sleeps */
    alignas(RING_LINE) uint8_t bytes[];
};

/* One side's view. */
struct ring {
    struct ring_memory *memory;
    size_t size;     /* a power of two, at least RING_ALIGNMENT */
    uint64_t mine;   /* head for the writer, tail for the reader */
    uint64_t theirs; /* the other one, as last seen */
};

static inline size_t ring_bytes(size_t size)
{
    return sizeof(struct ring_memory) + size;
}

/* The writer's. */
size_t ring_room(struct ring *ring); /* looks at the reader's progress */
/* Copies as much as fits from one part, at most `length`, and shows it to the reader. */
size_t ring_write(struct ring *ring, const void *bytes, size_t length);
void ring_end_write(struct ring *ring);

/* The reader's. */
size_t ring_available(struct ring *ring); /* looks at the writer's progress */
/* The next bytes in place, at most `limit`, up to the ring's end. */
size_t ring_view(struct ring *ring, const void **bytes, size_t limit);
void ring_consume(struct ring *ring, size_t length);
void ring_end_read(struct ring *ring);

#endif
