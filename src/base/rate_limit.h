/* rate_limit.h - at most one line of log a second about unauthenticated connections: a flood must not fill
 * it. One thread per struct. */
#ifndef HVD_BASE_RATE_LIMIT_H
#define HVD_BASE_RATE_LIMIT_H

#include "base/clock.h"

#include <stdbool.h>

struct rate_limit { /* zeroed memory is a valid fresh one */
    int64_t next;
    int held;
};

/* True when a line may be written; *held: how many were left out before it. */
static inline bool rate_limit_allows(struct rate_limit *rate_limit, int *held)
{
    int64_t now = clock_now();
    if (now < rate_limit->next) {
        rate_limit->held++;
        return false;
    }
    *held = rate_limit->held;
    *rate_limit = (struct rate_limit){now + CLOCK_SECOND, 0};
    return true;
}

#endif
