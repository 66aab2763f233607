/* interrupt.h - whoever waits long asks now and then whether it should give up. The waiting thread only. */
#ifndef HVD_BASE_INTERRUPT_H
#define HVD_BASE_INTERRUPT_H

#include "base/clock.h"
#include "horovod.h"

#include <stdbool.h>

#define INTERRUPT_INTERVAL (CLOCK_SECOND / 10)

struct interrupt { /* zeroed: never */
    hvd_interrupt_fn ask;
    void *argument;
};

static inline bool interrupt_asked(const struct interrupt *interrupt)
{
    return interrupt && interrupt->ask && interrupt->ask(interrupt->argument);
}

/* Until when to sleep before the next question. */
static inline int64_t interrupt_slice(const struct interrupt *interrupt, int64_t deadline)
{
    bool asks = interrupt && interrupt->ask;
    return asks ? clock_earlier(clock_now() + INTERRUPT_INTERVAL, deadline) : deadline;
}

#endif
