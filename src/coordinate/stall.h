/* stall.h - names that some ranks wait for while others do not ask (docs/coordination.md, "Stalls"). Inside
 * of a coordinator. Driver only. */
#ifndef HVD_COORDINATE_STALL_H
#define HVD_COORDINATE_STALL_H

#include "coordinate/state.h"

/* What a child has told of its part: who is missing there. */
struct stall_note {
    int child;
    int64_t waited; /* by then */
    struct rank_set missing;
    struct stall_note *next;
};

/* Looks for names that have waited too long: tells the parent, at the root the owner; after
 * stall_shutdown_time the root gives up. Does nothing before stall_next. */
hvd_code stall_check(struct coordinator *c, int64_t now, hvd_status *status);
int64_t stall_next(const struct coordinator *c);

hvd_code stall_receive(struct coordinator *c, int child, struct wire_reader *reader, hvd_status *status);

/* Takes what a child has told out of a round, or (-1) what all have. */
void stall_forget(struct entry *entry, int child);

#endif
