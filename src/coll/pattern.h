/* pattern.h - which rank sends which block to which peer, as arithmetic: no link, no memory, no state.
 *
 * Rings go host by host, so that each host has one link in and one out; the neighbours are those of the place
 * (base/topology.h). All else but alltoall stays on one graph: rank +- 2^k modulo size. Recursive doubling
 * with folding, binomial trees from any root and dissemination are all subsets of it, so a rank opens
 * 2 log2(size) + 2 links at most. */
#ifndef HVD_COLL_PATTERN_H
#define HVD_COLL_PATTERN_H

#include "base/topology.h"
#include "coll/collective.h"

#include <stddef.h>

struct range {
    size_t offset, length; /* bytes */
};

/* Part `index` of `bytes` cut into `parts` of nearly equal length: on 64-byte lines where every part gets
 * several, else between elements. The parts are in order and leave nothing out; some may be empty. */
struct range pattern_block(size_t bytes, size_t element, int parts, int index);

/* Part `index` of `rows` cut into `parts`, in rows: the first (rows modulo parts) have one more. */
struct range pattern_rows(size_t rows, int parts, int index);

/* (rank + distance) modulo size, also for negative distances. */
int pattern_shift(int rank, int distance, int size);

/* The rank that is `distance` places further on the ring of all ranks. */
int pattern_ring(const struct topology *topology, int rank, int distance);

/* Rounds in which a distance that doubles from 1 reaches all ranks: ceil(log2(size)). */
int pattern_rounds(int size);

/* The largest power of two that is not above size (>= 1). */
int pattern_power(int size);

#define PATTERN_CHILD_LIMIT 32

/* Binomial tree: the parent of a rank, -1 for the root; and its children, the largest subtree first. */
int pattern_tree_parent(int rank, int root, int size);
int pattern_tree_children(int rank, int root, int size, int children[PATTERN_CHILD_LIMIT]);

/* ---- allreduce -------------------------------------------------------------------------------------------
 * What the algorithms of allreduce share. */

/* Where this rank's own contribution to a range lies, and the step after which it is there. */
struct contribution {
    enum step_buffer buffer;
    int gate;
};

/* The input itself; or, when it has to be scaled first, the output, after a copy that this call adds. */
struct contribution contribution_add(const struct collective *collective, struct range range,
                                     struct schedule *schedule);

static inline struct range whole_of(const struct collective *collective)
{
    return (struct range){0, collective->output.length};
}

/* A step of a range with a peer, gated as `source` is, which it takes where it reads a buffer; its index. */
int step_add(struct schedule *schedule, enum step_kind kind, int peer, struct range range,
             struct contribution source);

/* What the step writes is the final value; fine after memory ran out. */
void step_set_last(struct schedule *schedule, int step);

/* Part `index` of `count` of a range, on elements. */
struct range part_of(const struct collective *collective, struct range range, int count, int index);

/* In how many pieces of about collective->piece_bytes for each of `parts` a long vector is worked on: what
 * was reduced is sent on while it lies in the cache. */
int count_pieces(const struct collective *collective, int parts);

/* output[range] = input[range], prescaled; the index of the step. */
int copy_add(struct range range, bool last, struct schedule *schedule);

/* ---- ring_reduce -----------------------------------------------------------------------------------------
 * A ring of ranks: blocks are reduced on their way around it, which is all of reducescatter,
 * and complete ones are passed on, with which allreduce ends. */

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
