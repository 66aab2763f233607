/* futex.c - see futex.h. No state; any thread. */
#include "base/futex.h"

#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wait_on(atomic_uint *word, unsigned expected, int64_t deadline, int operation)
{
    struct timespec until = {.tv_sec = deadline / CLOCK_SECOND, .tv_nsec = deadline % CLOCK_SECOND};
    /* FUTEX_WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC. */
    syscall(SYS_futex, word, operation, expected, deadline == CLOCK_NEVER ? NULL : &until, NULL,
            FUTEX_BITSET_MATCH_ANY);
}

void futex_wait(atomic_uint *word, unsigned expected, int64_t deadline)
{
    wait_on(word, expected, deadline, FUTEX_WAIT_BITSET_PRIVATE);
}

void futex_wake_all(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void futex_wait_shared(atomic_uint *word, unsigned expected, int64_t deadline)
{
    wait_on(word, expected, deadline, FUTEX_WAIT_BITSET);
}

void futex_wake_shared(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
