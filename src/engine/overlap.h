/* overlap.h - the memory that this rank's operations read and write, from when they leave the queue of
 * submissions until they end. Two of them overlap if one writes memory that the other one reads or writes:
 * they must run one after the other. While addresses only rise, or only fall, comparing them with the bounds
 * of all earlier ones suffices; otherwise a treap of address ranges takes a few steps per tensor. Under the
 * progress lock. */
#ifndef HVD_ENGINE_OVERLAP_H
#define HVD_ENGINE_OVERLAP_H

#include "horovod.h"

#include <stdbool.h>
#include <stdint.h>

enum { ALL_RANGES, WRITTEN_RANGES, RANGE_KINDS };

/* The memory of one tensor: a node of the treap. */
struct memory_range {
    uintptr_t start, end;
    uintptr_t reach[RANGE_KINDS]; /* the largest end in the subtree */
    struct memory_range *left, *right;
    const struct footprint *footprint;
    uint32_t weight; /* at most that of the parent node */
    bool written;
};

struct bounds {
    uintptr_t start, end; /* end 0: empty */
};

/* Bounds of the memory of some tensors. */
struct extent {
    struct bounds read, written;
};

struct overlaps {
    struct memory_range *root;
    struct footprint *disjoint; /* operations that overlap no other one, the newest first: not in the treap */
    struct extent extent;       /* of all operations in flight; not kept while there is only one */
    uint64_t entered;           /* operations so far */
    uint32_t weight;            /* of the last range */
};

/* The memory of one operation. */
struct footprint {
    struct memory_range *ranges; /* the owner's, room for one per input and output */
    int count;                   /* of ranges in the treap */
    const hvd_request *request;
    uint64_t place; /* in the order in which operations entered */
    int process_set;
    bool held; /* named, but not yet given to the coordinator: see progress.c */
    void *owner;
    struct footprint *previous, *next; /* in the list `disjoint` */
    bool disjoint;                     /* it is in that list */
};

/* Returns true if addresses only rise or fall, so that the tensor overlaps none that was added before; false:
 * it may overlap one. */
bool extent_add(struct extent *extent, const hvd_tensor *tensor, bool written);

void overlaps_init(struct overlaps *overlaps);

/* The operation counts until it leaves; the request and `footprint`, whose `ranges` the caller has set, must
 * not move or be freed before. */
void overlaps_enter(struct overlaps *overlaps, const hvd_request *request, struct footprint *footprint,
                    void *owner);
void overlaps_leave(struct overlaps *overlaps, struct footprint *footprint); /* fine if it never entered */

/* Returns true if it overlaps any other operation. */
bool overlaps_any(const struct overlaps *overlaps, const struct footprint *footprint);

/* Returns the owner of an earlier operation that overlaps it, and that no common coordinator orders before
 * it: it is of another process set, or held back itself. NULL: there is none. */
void *overlaps_before(const struct overlaps *overlaps, const struct footprint *footprint);

#endif
