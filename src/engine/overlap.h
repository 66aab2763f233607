/* overlap.h - the memory that this rank's operations read and write from the moment they are taken until they
 * end. Two of them overlap where one writes what the other one reads or writes: they have to run one after
 * the other. A treap of address ranges: a few steps for each tensor. Driver only. */
#ifndef HVD_ENGINE_OVERLAP_H
#define HVD_ENGINE_OVERLAP_H

#include "base/pool.h"
#include "horovod.h"

#include <stdbool.h>
#include <stdint.h>

struct memory_range;

struct overlaps {
    struct pool pool; /* of ranges */
    struct memory_range *root;
    uint64_t entered; /* operations so far */
    uint32_t weight;  /* of the last range */
};

/* What one operation touches. */
struct touched {
    struct memory_range *ranges;
    int count;
    size_t bytes;   /* of the list */
    uint64_t place; /* among all that entered */
    int process_set;
    bool held; /* named, but not yet given to the coordinator: see progress.c */
    void *owner;
};

void overlaps_init(struct overlaps *overlaps);
void overlaps_fini(struct overlaps *overlaps);

/* From here on it counts; false when memory is out. `touched` stays put until it leaves. */
bool overlaps_enter(struct overlaps *overlaps, const hvd_request *request, struct touched *touched,
                    void *owner);
void overlaps_leave(struct overlaps *overlaps, struct touched *touched); /* fine if it never entered */

/* Whether it overlaps any other one. */
bool overlaps_any(const struct overlaps *overlaps, const struct touched *touched);

/* The owner of one that entered before, overlaps it and has not the same coordinator to order the two: it is
 * of another process set, or held back itself. NULL: there is none. */
void *overlaps_before(const struct overlaps *overlaps, const struct touched *touched);

#endif
