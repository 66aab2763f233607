/* patience.h - the time limit of a wait in which the thread wakes at least every PATIENCE_STEP to check. A
 * longer time between two checks counts as one step: this process stood still, and where the whole machine
 * did, so did the process for which it waits. Belongs to one thread at a time. */
#ifndef HVD_BASE_PATIENCE_H
#define HVD_BASE_PATIENCE_H

#include "base/clock.h"

#define PATIENCE_STEP (CLOCK_SECOND / 10)

struct patience {
    int64_t left, checked;
};

/* From now on. */
static inline struct patience patience_of(int64_t time)
{
    return (struct patience){time, clock_now()};
}

/* Checks, and returns true once the time has passed. */
static inline bool patience_ends(struct patience *patience)
{
    int64_t now = clock_now();
    patience->left -= clock_earlier(now - patience->checked, PATIENCE_STEP);
    patience->checked = now;
    return patience->left <= 0;
}

#endif
