/* pattern.h - which rank sends which block to which peer, as arithmetic: no link, no memory, no state.
 *
 * Rings and chains go host by host (hierarchy.h). All else but alltoall stays on one graph: rank +- 2^k
 * modulo size. Recursive doubling with folding, binomial trees from any root and dissemination are all
 * subsets of it, so a rank opens 2 log2(size) + 2 links at most. */
#ifndef HVD_COLL_PATTERN_H
#define HVD_COLL_PATTERN_H

#include "coll/collective.h"

#include <stddef.h>

struct range {
    size_t offset, length; /* elements */
};

/* Part `index` of `elements` of `size` bytes, cut into `parts` of nearly equal length: on 64-byte lines if
 * every part gets several, otherwise between any two elements. The parts are in order and leave nothing out;
 * some may be empty. */
struct range pattern_block(size_t elements, size_t size, int parts, int index);

/* Part `index` of `rows` cut into `parts`, in rows: the first (rows modulo parts) have one more. */
struct range pattern_rows(size_t rows, int parts, int index);

/* (rank + distance) modulo size, also for negative distances. */
int pattern_shift(int rank, int distance, int size);

/* Rounds in which a distance that doubles from 1 reaches all ranks: ceil(log2(size)). */
int pattern_rounds(int size);

/* The largest power of two that is not above size (>= 1). */
int pattern_power(int size);

#define PATTERN_CHILD_LIMIT 32

/* Binomial tree: the parent of a rank, -1 for the root; and its children, the largest subtree first. */
int pattern_tree_parent(int rank, int root, int size);
int pattern_tree_children(int rank, int root, int size, int children[PATTERN_CHILD_LIMIT]);

/* ---- steps -----------------------------------------------------------------------------------------------
 * What algorithms share. */

/* Where this rank's own contribution to a range lies, and the step after which it is there. */
struct contribution {
    enum step_buffer buffer;
    int gate;
    bool is_sum; /* not this rank's elements alone */
};

/* The input itself; or, when it has to be scaled first, the output, after a copy that this call adds. */
struct contribution contribution_add(const struct collective *collective, struct range range,
                                     struct schedule *schedule);

static inline struct range whole_of(const struct collective *collective)
{
    return (struct range){0, collective->output.length / hvd_dtype_size(collective->dtype)};
}

/* A step of a range with a peer, gated as `source` is, which it takes where it reads a buffer; its index. */
int step_add(struct schedule *schedule, enum step_kind kind, int peer, struct range range,
             struct contribution source);

/* Reduces it with what the peer sends; returns the result. received_is_sum: the peer sends a result of
 * reduce_add. */
struct contribution reduce_add(struct schedule *schedule, int peer, struct range range,
                               struct contribution own, bool received_is_sum);

/* What the step writes is the final value; fine after memory ran out. */
void step_set_last(struct schedule *schedule, int step);

/* Part `index` of `count` of a range. */
struct range part_of(const struct collective *collective, struct range range, int count, int index);

/* In how many pieces of about collective->piece_bytes for each of `parts` a long vector is worked on: what
 * was reduced is sent on while it lies in the cache. */
int count_pieces(const struct collective *collective, int parts);

/* output[range] = input[range], prescaled; the index of the step. */
int copy_add(struct range range, bool last, struct schedule *schedule);

#endif
