/* clock.h - time in nanoseconds, and long waits that the caller may interrupt. Any thread; a struct
 * belongs to one thread at a time. */
#ifndef HVD_BASE_CLOCK_H
#define HVD_BASE_CLOCK_H

#include "horovod.h"

#include <stdbool.h>
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

/* Nanoseconds since 1970, for people and other programs: this time may be set back. */
static inline int64_t clock_since_1970(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * CLOCK_SECOND + now.tv_nsec;
}

/* Compares int64_t for qsort. */
static inline int clock_compare(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
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

/* A long wait calls `ask` every INTERRUPT_INTERVAL, in the waiting thread; true ends it. */
#define INTERRUPT_INTERVAL (CLOCK_SECOND / 10)

struct interrupt { /* zeroed: never */
    hvd_interrupt_fn ask;
    void *argument;
};

static inline bool interrupt_is_set(const struct interrupt *interrupt)
{
    return interrupt && interrupt->ask && interrupt->ask(interrupt->argument);
}

/* The deadline of the next sleep of such a wait. */
static inline int64_t interrupt_slice(const struct interrupt *interrupt, int64_t deadline)
{
    bool polls = interrupt && interrupt->ask;
    return polls ? clock_earlier(clock_now() + INTERRUPT_INTERVAL, deadline) : deadline;
}

/* ---- rate_limit ------------------------------------------------------------------------------------------
 * At most one line of log a second about unauthenticated connections: a flood must not fill
 * it. One thread per struct. */

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
