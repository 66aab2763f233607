/* overlap.h - the memory that this rank's operations read and write from the moment they are taken until they
 * end. Two of them overlap where one writes what the other one reads or writes: they have to run one after
 * the other. Addresses that only rise, or only fall, are outside the bounds of all before: a comparison. Else
 * a treap of address ranges: a few steps for each tensor. Under the progress lock. */
#ifndef HVD_ENGINE_OVERLAP_H
#define HVD_ENGINE_OVERLAP_H

#include "horovod.h"

#include <stdbool.h>
#include <stdint.h>

enum { ALL_RANGES, WRITTEN_RANGES, RANGE_KINDS };

/* What one tensor touches: a node of the treap. */
struct memory_range {
    uintptr_t start, end;
    uintptr_t reach[RANGE_KINDS]; /* the largest end in the subtree */
    struct memory_range *left, *right;
    const struct touched *touched;
    uint32_t weight; /* no node has more than its parent */
    bool written;
};

struct bounds {
    uintptr_t start, end; /* end 0: of nothing */
};

/* Where the memory of some tensors lies, at most. */
struct extent {
    struct bounds read, written;
};

struct overlaps {
    struct memory_range *root;
    struct touched *apart; /* operations that overlap no other one, the newest first: not in the treap */
    struct extent extent;  /* of all in flight; not kept for the only one */
    uint64_t entered;      /* operations so far */
    uint32_t weight;       /* of the last range */
};

/* What one operation touches. */
struct touched {
    struct memory_range *ranges; /* the owner's, room for one per input and output */
    int count;                   /* of those in the treap */
    const hvd_request *request;
    uint64_t place; /* among all that entered */
    int process_set;
    bool held; /* named, but not yet given to the coordinator: see progress.c */
    void *owner;
    struct touched *previous, *next; /* in `apart` */
    bool apart;
};

/* True: addresses only rise or fall, so it overlaps none that was added before; false: it may. */
bool extent_add(struct extent *extent, const hvd_tensor *tensor, bool written);

void overlaps_init(struct overlaps *overlaps);

/* From here on it counts. The request and `touched`, of which `ranges` is set, stay put until it leaves. */
void overlaps_enter(struct overlaps *overlaps, const hvd_request *request, struct touched *touched,
                    void *owner);
void overlaps_leave(struct overlaps *overlaps, struct touched *touched); /* fine if it never entered */

/* Whether it overlaps any other one. */
bool overlaps_any(const struct overlaps *overlaps, const struct touched *touched);

/* The owner of one that entered before, overlaps it and has not the same coordinator to order the two: it is
 * of another process set, or held back itself. NULL: there is none. */
void *overlaps_before(const struct overlaps *overlaps, const struct touched *touched);

#endif
