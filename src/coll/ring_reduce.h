/* ring_reduce.h - a ring of ranks: blocks are reduced on their way around it, which is all of reducescatter,
 * and complete ones are passed on, with which allreduce ends. */
#ifndef HVD_COLL_RING_REDUCE_H
#define HVD_COLL_RING_REDUCE_H

#include "coll/allreduce.h"

struct ring {
    int left, right; /* ranks */
    int place, size; /* of this rank; two at least */
    /* What this rank adds to a block: NULL is its part of the input, else what another step has reduced. */
    const struct contribution *own;
};

/* All ranks, host by host. */
struct ring ring_of_all(const struct collective *collective);

/* Where block `index` of `count` lies in a piece of both vectors; blocks are numbered by place. */
typedef struct range (*block_fn)(const struct collective *collective, struct range piece, int count,
                                 int index);

/* Of two ranks at least. This rank sends block `first` off, adds its own part to what comes in, and passes it
 * on. At the end it has block `first + 1` complete and scaled: the return value. Its neighbours must start
 * with theirs: place p starts with a block that is p further than that of place 0. */
struct contribution ring_reduce(const struct collective *collective, const struct ring *ring,
                                struct range piece, block_fn block_of, int first, struct schedule *schedule);

/* Passes the complete blocks on until every rank of the ring has all: `reduced` is what ring_reduce returned
 * that began with this rank's place. `complete`, unless NULL, is called for every block, in the order in
 * which they come: place + 1, place, place - 1, ... */
typedef void (*complete_fn)(const struct collective *collective, struct range block,
                            struct contribution complete, struct schedule *schedule);
void ring_gather(const struct collective *collective, const struct ring *ring, struct range piece,
                 block_fn block_of, struct contribution reduced, complete_fn complete,
                 struct schedule *schedule);

#endif
