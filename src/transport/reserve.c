/* reserve.c - allocates the pages of a ring in pieces, and returns them. The writer, under the progress lock.
 */
#include "transport/reserve.h"

#include "base/platform_memory.h"

#define LEAST_PIECE ((size_t)64 << 10)

/* Returns the size of a piece, a power of two; a ring has 64 of them at most. */
static size_t piece_bytes(const struct ring *ring)
{
    size_t piece = ring->size / 64;
    return piece < LEAST_PIECE ? LEAST_PIECE : piece;
}

struct reserve reserve_of(const struct ring *ring)
{
    size_t pieces = ring->size / piece_bytes(ring);
    uint64_t all = pieces >= 64 ? UINT64_MAX : ((uint64_t)1 << (pieces ? pieces : 1)) - 1;
    return (struct reserve){.missing = all, .all = all};
}

static bool reserve_piece(struct reserve *reserve, const struct ring *ring, size_t index)
{
    uint64_t bit = (uint64_t)1 << index;
    size_t piece = piece_bytes(ring);
    if (!(reserve->missing & bit))
        return true;
    if (!platform_memory_reserve(ring->memory->bytes + index * piece,
                                 piece < ring->size ? piece : ring->size))
        return false;
    reserve->missing &= ~bit;
    return true;
}

bool reserve_next(struct reserve *reserve, const struct ring *ring, size_t length)
{
    size_t mask = ring->size - 1, piece = piece_bytes(ring);
    size_t left = length < ring->size ? length : ring->size;
    for (uint64_t at = ring->mine; reserve->missing && left;) {
        size_t n = piece - (size_t)(at & (piece - 1));
        if (!reserve_piece(reserve, ring, (size_t)(at & mask) / piece))
            return false;
        n = n < left ? n : left;
        at += n;
        left -= n;
    }
    return true;
}

bool reserve_return(struct reserve *reserve, struct ring *ring)
{
    if (!reserve_is_used(reserve))
        return true;
    uint64_t written = atomic_load_explicit(&ring->memory->head, memory_order_relaxed);
    ring_room(ring);
    if ((int64_t)(written - ring->theirs) > 0)
        return false;
    if (platform_memory_return(ring->memory->bytes, ring->size))
        reserve->missing = reserve->all;
    return true;
}
