/* arena.h - memory of this process that the other ranks of its host can map and read in place: segments of
 * their own for the user's tensors. They belong to the process, not to a context. Any thread. */
#ifndef HVD_TRANSPORT_ARENA_H
#define HVD_TRANSPORT_ARENA_H

#include "transport/segment.h"

/* The arena that holds all of these bytes, and where; false when there is none. */
bool arena_find(const void *data, size_t length, struct ring_reference *reference);

/* A copy of the descriptor of the oldest arena after `serial`, and its own serial; -1: there is none. */
int arena_descriptor(uint64_t after, uint64_t *serial);

/* What the head of a peer's arena says. 0: it is too small to be one. */
uint64_t arena_serial(const struct segment *segment);
bool arena_is_freed(const struct segment *segment);

#endif
