/* throttle.h - at most one line a second of what strangers can cause: a flood must not fill the log. */
#ifndef HVD_BASE_THROTTLE_H
#define HVD_BASE_THROTTLE_H

#include "base/clock.h"

#include <stdbool.h>

struct throttle { /* zeroed memory is a valid fresh one */
    int64_t next;
    int held;
};

/* True when a line may be written; *held: how many were left out before it. */
static inline bool throttle_passes(struct throttle *throttle, int *held)
{
    int64_t now = clock_now();
    if (now < throttle->next) {
        throttle->held++;
        return false;
    }
    *held = throttle->held;
    *throttle = (struct throttle){now + CLOCK_SECOND, 0};
    return true;
}

#endif
