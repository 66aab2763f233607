/* ring_reduce.h - blocks are reduced on their way around the ring: what allreduce starts with, and all of
 * reducescatter. */
#ifndef HVD_COLL_RING_REDUCE_H
#define HVD_COLL_RING_REDUCE_H

#include "coll/allreduce.h"

/* Where block `index` of a piece of both vectors lies; blocks are numbered by place. */
typedef struct range (*block_fn)(const struct collective *collective, struct range piece, int index);

/* This rank sends block `first` off, adds its own part to what comes in, and passes it on. At the end it has
 * block `first + 1` complete and scaled: the return value. Its neighbours must start with theirs: place p
 * starts with a block that is p further than that of place 0. Two ranks at least. */
struct contribution ring_reduce(const struct collective *collective, struct range piece, block_fn block_of,
                                int first, struct schedule *schedule);

/* To the right neighbour, as soon as it is there. */
void ring_send(const struct collective *collective, struct range block, struct contribution source,
               struct schedule *schedule);

#endif
