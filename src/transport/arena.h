/* arena.h - memory of this process that the other ranks of its host can map and read in place: segments of
 * their own for the user's tensors (hvd_shared_alloc). They belong to the process, not to a context. Any
 * thread. */
#ifndef HVD_TRANSPORT_ARENA_H
#define HVD_TRANSPORT_ARENA_H

#include "transport/segment.h"

/* Returns the arena that contains all of these bytes, and where they are in it; false: there is none. */
bool arena_find(const void *data, size_t length, struct ring_reference *reference);

/* Returns a copy of the descriptor of the oldest arena after the serial `after`, and its serial; -1: there is
 * none. */
int arena_descriptor(uint64_t after, uint64_t *serial);

/* Returns the serial number in the head of a peer's arena; 0: the mapping is too small to be an arena. */
uint64_t arena_serial(const struct segment *segment);
bool arena_is_freed(const struct segment *segment);

#endif
