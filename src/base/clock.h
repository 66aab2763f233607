/* clock.h - monotonic time in nanoseconds. */
#ifndef HVD_BASE_CLOCK_H
#define HVD_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CLOCK_SECOND INT64_C(1000000000)
#define CLOCK_NEVER  INT64_MAX

static inline int64_t clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * CLOCK_SECOND + now.tv_nsec;
}

static inline int64_t clock_earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* `seconds` from now; negative: never. */
static inline int64_t clock_after(double seconds)
{
    return seconds < 0 || seconds > 1e9 ? CLOCK_NEVER : clock_now() + (int64_t)(seconds * CLOCK_SECOND);
}

#endif
