/* errand.c - see errand.h. */
#include "engine/errand.h"

#include "base/clock.h"
#include "base/platform.h"
#include "base/thread.h"

enum { ERRAND_DONE = 1, ERRAND_RUNS = 2 };

static void *run(void *argument)
{
    struct errand *errand = argument;
    errand->run();
    atomic_store(&errand->state, ERRAND_DONE);
    futex_wake_all(&errand->state);
    return NULL;
}

bool errand_wait(struct errand *errand, int64_t deadline, const atomic_bool *stop)
{
    while (atomic_load(&errand->state) == ERRAND_RUNS && !atomic_load(stop) && clock_now() < deadline)
        futex_wait(&errand->state, ERRAND_RUNS, clock_earlier(deadline, clock_now() + CLOCK_SECOND / 20));
    return atomic_load(&errand->state) != ERRAND_RUNS;
}

bool errand_run(struct errand *errand, int64_t deadline, const atomic_bool *stop)
{
    if (atomic_load(&errand->state) == ERRAND_RUNS)
        return false;
    atomic_store(&errand->state, ERRAND_RUNS);
    if (thread_start_small(NULL, run, errand)) {
        atomic_store(&errand->state, ERRAND_DONE);
        return false;
    }
    return errand_wait(errand, deadline, stop);
}

void errand_forget(struct errand *errand)
{
    atomic_store(&errand->state, 0);
}
