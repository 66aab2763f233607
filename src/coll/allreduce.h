/* allreduce.h - what all algorithms of allreduce start with. */
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

/* A step of the whole vector, gated as `source` is, which it takes where it reads a buffer; its index. */
int step_add(const struct collective *collective, struct schedule *schedule, enum step_kind kind, int peer,
             struct contribution source);

/* output[range] = input[range], prescaled; the index of the step. */
int copy_add(struct range range, bool last, struct schedule *schedule);

#endif
