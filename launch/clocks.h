/* clocks.h - by how much the clock of another host is ahead of this one's, and how that follows from what
 * ranks have recorded. Pure: any thread. */
#ifndef HVD_LAUNCH_CLOCKS_H
#define HVD_LAUNCH_CLOCKS_H

#include "watch/history.h"

/* The best look so far at the clock of a host. Zeroed: there was none, and the clocks count as equal. */
struct clock_look {
    int64_t sent;  /* when the question left */
    int64_t trip;  /* ns from then to the answer */
    int64_t ahead; /* ns by which the other clock is ahead */
};

/* A question left here at `sent`, its answer with the time `theirs` was received at `received`. The clock was
 * read in between, so a short trip says most; but clocks drift apart, so that a look gets worse with its age.
 */
void clock_look_add(struct clock_look *look, int64_t sent, int64_t theirs, int64_t received);

/* One rank of a trace. */
struct clock_rank {
    int host;
    const struct history *history;
};

/* Corrects `ahead`, which has an element for each host: no rank learns of a decision before it was sent, and
 * none decides before the last rank has submitted. The clock of host 0 counts. */
hvd_code clocks_correct(const struct clock_rank *ranks, int count, int64_t *ahead, int hosts,
                        hvd_status *status);

#endif
