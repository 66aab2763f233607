/* pattern.h - computes which rank sends which block to which peer, without links, memory or state. Any
 * thread.
 *
 * Rings and chains go host by host (hierarchy.h). All other algorithms except alltoall use one graph: rank +-
 * 2^k modulo size. Recursive doubling with folding, binomial trees from any root and dissemination are
 * subsets of it, so a rank opens at most 2 log2(size) + 2 links. */
#ifndef HVD_COLL_PATTERN_H
#define HVD_COLL_PATTERN_H

#include "coll/collective.h"

#include <stddef.h>

struct range {
    size_t offset, length; /* elements */
};

/* Returns part `index` of `elements` of `size` bytes, cut into `parts` of nearly equal length: at 64-byte
 * lines if every part gets several, otherwise between any two elements. The parts are in order and cover all
 * elements; some may be empty. */
struct range pattern_block(size_t elements, size_t size, int parts, int index);

/* Returns part `index` of `rows` cut into `parts`, in rows: the first (rows modulo parts) have one more. */
struct range pattern_rows(size_t rows, int parts, int index);

/* Returns (rank + distance) modulo size, also for negative distances. */
int pattern_shift(int rank, int distance, int size);

/* Returns the rounds in which a distance that doubles from 1 reaches all ranks: ceil(log2(size)). */
int pattern_rounds(int size);

/* Returns the largest power of two that is not above size (>= 1). */
int pattern_power(int size);

#define PATTERN_CHILD_LIMIT 32

/* Return a rank's place in a binomial tree: its parent, -1 for the root; its children, the largest subtree
 * first. */
int pattern_tree_parent(int rank, int root, int size);
int pattern_tree_children(int rank, int root, int size, int children[PATTERN_CHILD_LIMIT]);

/* ---- steps -----------------------------------------------------------------------------------------------
 * Functions that algorithms share. */

/* Where this rank's contribution to a range is, and the step after which it is there. */
struct contribution {
    enum step_buffer buffer;
    int gate;
    bool is_sum; /* includes elements of other ranks */
};

/* Returns the input itself or, if it must be scaled first, the output, after a copy that this call adds. */
struct contribution contribution_add(const struct collective *collective, struct range range,
                                     struct schedule *schedule);

static inline struct range whole_of(const struct collective *collective)
{
    return (struct range){0, collective->output.length / hvd_dtype_size(collective->dtype)};
}

/* Adds a step of a range with a peer, gated as `source` is; it reads the buffer of `source`. Returns its
 * index. */
int step_add(struct schedule *schedule, enum step_kind kind, int peer, struct range range,
             struct contribution source);

/* Adds a step that reduces `own` with the peer's elements; returns the result. received_is_sum: the peer
 * sends a result of reduce_add. */
struct contribution reduce_add(struct schedule *schedule, int peer, struct range range,
                               struct contribution own, bool received_is_sum);

/* Marks the step as the one that writes final values; does nothing after memory ran out. */
void step_set_last(struct schedule *schedule, int step);

/* Returns part `index` of `count` of a range. */
struct range part_of(const struct collective *collective, struct range range, int count, int index);

/* Returns the number of pieces, of about collective->piece_bytes for each of `parts`, in which a long vector
 * is processed: reduced elements are sent on while they are in the cache. */
int count_pieces(const struct collective *collective, int parts);

/* Adds the step output[range] = input[range], prescaled; returns its index. */
int copy_add(struct range range, bool last, struct schedule *schedule);

#endif
