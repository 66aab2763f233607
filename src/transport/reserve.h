/* reserve.h - memory of a ring on demand: its pages are allocated piece by piece, before the writer's first
 * byte there, and are returned when the ring is idle. So lack of memory is an error, and no signal later. The
 * writer's side; under the progress lock. */
#ifndef HVD_TRANSPORT_RESERVE_H
#define HVD_TRANSPORT_RESERVE_H

#include "transport/ring.h"

struct reserve {
    uint64_t missing; /* pieces of the ring without memory, a bit each */
    uint64_t all;     /* 0: the ring has its memory from the start */
};

/* Returns the reserve of a ring whose bytes have no memory yet. */
struct reserve reserve_of(const struct ring *ring);

/* Allocates the memory of the next `length` bytes. False: errno. */
bool reserve_next(struct reserve *reserve, const struct ring *ring, size_t length);

static inline bool reserve_is_used(const struct reserve *reserve)
{
    return reserve->missing != reserve->all;
}

/* Returns all memory to the system; false: the reader has not read everything, try again later. */
bool reserve_return(struct reserve *reserve, struct ring *ring);

#endif
