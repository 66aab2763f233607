/* pattern.h - which rank sends which block to which peer, as arithmetic: no link, no memory, no state.
 *
 * Rings go host by host, so that each host has one link in and one out; the neighbours are those of the place
 * (base/topology.h). All else but alltoall stays on one graph: rank +- 2^k modulo size. Recursive doubling
 * with folding, binomial trees from any root and dissemination are all subsets of it, so a rank opens
 * 2 log2(size) + 2 links at most. */
#ifndef HVD_COLL_PATTERN_H
#define HVD_COLL_PATTERN_H

#include "base/topology.h"

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

#endif
