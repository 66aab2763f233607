/* allreduce.h - what the algorithms of allreduce share. */
#ifndef HVD_COLL_ALLREDUCE_H
#define HVD_COLL_ALLREDUCE_H

#include "coll/collective.h"
#include "coll/pattern.h"

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

#endif
