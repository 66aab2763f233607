/* stall.h - detection of names that some ranks have submitted and others have not (docs/coordination.md,
 * "Stalls"). Inside of a coordinator; called with the progress lock held. */
#ifndef HVD_COORDINATE_STALL_H
#define HVD_COORDINATE_STALL_H

#include "coordinate/state.h"

/* A child's report of a stalled name: the missing ranks of its subtree. */
struct stall_report {
    int child;
    int64_t waited; /* by then */
    struct rank_set missing;
    struct stall_report *next;
};

/* Looks for names that have waited too long: reports them to the parent, at the root to the owner; after
 * stall_shutdown_time the root gives up. Does nothing before stall_next. */
hvd_code stall_check(struct coordinator *c, int64_t now, hvd_status *status);
int64_t stall_next(const struct coordinator *c);

hvd_code stall_receive(struct coordinator *c, int child, struct wire_reader *reader, hvd_status *status);

/* Drops the stall report of one child (-1: of all) from a round. */
void stall_drop(struct entry *entry, int child);

#endif
