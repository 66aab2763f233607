/* futex.c - Linux's futex; the only file to replace for another system. */
#include "base/futex.h"

#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

void futex_wait(atomic_uint *word, unsigned expected, int64_t deadline)
{
    struct timespec until = {.tv_sec = deadline / CLOCK_SECOND, .tv_nsec = deadline % CLOCK_SECOND};
    /* FUTEX_WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC. */
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, expected, deadline == CLOCK_NEVER ? NULL : &until,
            NULL, FUTEX_BITSET_MATCH_ANY);
}

void futex_wake_all(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
