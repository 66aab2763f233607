/* ring.c - see ring.h. What is published with seq_cst order is followed by a look at whether the other side
 * sleeps (shm.c); the sleeper sets its word, then looks here, in the same order: one of the two sees the
 * other. */
#include "transport/ring.h"

#include <string.h>

/* Padding may put `mine` ahead of what the other side has published: then there is nothing, not a lot. */
static size_t distance(const struct ring *ring, uint64_t ahead, uint64_t behind)
{
    int64_t n = (int64_t)(ahead - behind);
    if (n <= 0)
        return 0;
    return (uint64_t)n > ring->size ? ring->size : (size_t)n;
}

static uint64_t aligned(uint64_t position)
{
    return (position + RING_ALIGNMENT - 1) & ~(uint64_t)(RING_ALIGNMENT - 1);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t ring_room(struct ring *ring)
{
    ring->theirs = atomic_load_explicit(&ring->memory->tail, memory_order_seq_cst);
    return distance(ring, ring->theirs + ring->size, ring->mine);
}

size_t ring_write(struct ring *ring, const void *bytes, size_t length)
{
    size_t room = distance(ring, ring->theirs + ring->size, ring->mine);
    if (room < length)
        room = ring_room(ring);
    size_t n = smaller(room, length);
    if (!n)
        return 0;
    size_t at = ring->mine & (ring->size - 1);
    size_t first = smaller(n, ring->size - at);
    memcpy(ring->memory->bytes + at, bytes, first);
    memcpy(ring->memory->bytes, (const uint8_t *)bytes + first, n - first);
    ring->mine += n;
    atomic_store_explicit(&ring->memory->head, ring->mine, memory_order_seq_cst);
    return n;
}

/* Both sides skip the same padding, each for itself; it is never published. */
void ring_end_write(struct ring *ring)
{
    ring->mine = aligned(ring->mine);
}

size_t ring_available(struct ring *ring)
{
    ring->theirs = atomic_load_explicit(&ring->memory->head, memory_order_seq_cst);
    return distance(ring, ring->theirs, ring->mine);
}

size_t ring_view(struct ring *ring, const void **bytes, size_t limit)
{
    size_t at = ring->mine & (ring->size - 1);
    size_t contiguous = smaller(limit, ring->size - at);
    size_t available = distance(ring, ring->theirs, ring->mine);
    if (available < contiguous)
        available = ring_available(ring);
    *bytes = ring->memory->bytes + at;
    return smaller(available, contiguous);
}

void ring_consume(struct ring *ring, size_t length)
{
    ring->mine += length;
    atomic_store_explicit(&ring->memory->tail, ring->mine, memory_order_seq_cst);
}

void ring_end_read(struct ring *ring)
{
    uint64_t end = aligned(ring->mine);
    if (end != ring->mine)
        ring_consume(ring, (size_t)(end - ring->mine));
}
