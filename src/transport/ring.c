/* ring.c - reads and writes a ring. What is published with seq_cst order is followed by a check whether the
 * other side sleeps (shm_link.c); the sleeper sets its word, then checks here, in the same order: one of the
 * two sees the other. */
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
    size_t n = room < length ? room & ~(size_t)(RING_GRAIN - 1) : length;
    if (!n)
        return 0;
    size_t at = ring->mine & (ring->size - 1);
    size_t first = smaller(n, ring->size - at);
    stores_copy(ring->stores, ring->memory->bytes + at, bytes, first);
    stores_copy(ring->stores, ring->memory->bytes, (const uint8_t *)bytes + first, n - first);
    ring->mine += n;
    atomic_store_explicit(&ring->memory->head, ring->mine, memory_order_seq_cst);
    return n;
}

static struct ring_slot *next_slot(const struct ring *ring)
{
    return &ring->memory->slots[ring->slots % RING_SLOTS];
}

bool ring_refer(struct ring *ring, const struct ring_reference *reference)
{
    struct ring_slot *slot = next_slot(ring);
    uint64_t stamp = atomic_load_explicit(&slot->stamp, memory_order_relaxed);
    uint64_t end = stamp - 1 + atomic_load_explicit(&slot->length, memory_order_relaxed);
    ring_room(ring);
    if (stamp && (int64_t)(ring->theirs - end) < 0)
        return false;
    atomic_store_explicit(&slot->arena, reference->arena, memory_order_relaxed);
    atomic_store_explicit(&slot->offset, reference->offset, memory_order_relaxed);
    atomic_store_explicit(&slot->length, reference->length, memory_order_relaxed);
    atomic_store_explicit(&slot->stamp, ring->mine + 1, memory_order_release);
    ring->slots++;
    ring->mine += reference->length;
    atomic_store_explicit(&ring->memory->head, ring->mine, memory_order_seq_cst);
    return true;
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

bool ring_is_empty(const struct ring *ring)
{
    return !distance(ring, atomic_load_explicit(&ring->memory->head, memory_order_acquire), ring->mine);
}

/* How many bytes are in the ring before the next ones that are elsewhere. A side that has seen a head beyond
 * them has seen their slot, too; what an old slot says is behind, which as unsigned is far ahead. */
static uint64_t before_slot(const struct ring *ring)
{
    return atomic_load_explicit(&next_slot(ring)->stamp, memory_order_acquire) - 1 - ring->mine;
}

bool ring_follow(struct ring *ring, struct ring_reference *reference)
{
    if (!distance(ring, ring->theirs, ring->mine) && !ring_available(ring))
        return false;
    struct ring_slot *slot = next_slot(ring);
    if (before_slot(ring) != 0)
        return false;
    reference->arena = atomic_load_explicit(&slot->arena, memory_order_relaxed);
    reference->offset = atomic_load_explicit(&slot->offset, memory_order_relaxed);
    reference->length = atomic_load_explicit(&slot->length, memory_order_relaxed);
    ring->slots++;
    return true;
}

size_t ring_view(struct ring *ring, const void **bytes, size_t limit)
{
    size_t at = ring->mine & (ring->size - 1);
    size_t contiguous = smaller(limit, ring->size - at);
    size_t available = distance(ring, ring->theirs, ring->mine);
    if (available < contiguous)
        available = ring_available(ring);
    *bytes = ring->memory->bytes + at;
    uint64_t before = before_slot(ring);
    return smaller(before < available ? (size_t)before : available, contiguous);
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
