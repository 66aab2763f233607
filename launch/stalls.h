/* stalls.h - notices that a rank has reported a stall: its page says since when some ranks wait for others.
 * The launcher of one host and each agent look at the heads of the pages that they have made. One thread, the
 * loop's. */
#ifndef HVD_LAUNCH_STALLS_H
#define HVD_LAUNCH_STALLS_H

#include "processes.h"

struct stalls {
    struct table *table;
    uv_timer_t timer;
    int64_t noticed; /* when the last event was reported, clock_now's */
};

/* From now on EVENT_STALLED is reported once for each stall. */
void stalls_watch(struct stalls *stalls, struct table *table);

#endif
