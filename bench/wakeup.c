/* wakeup.c - microseconds until a waiting thread has seen what another wrote, one way: spinning, and asleep
 * in a futex. Two threads hand one word to and fro; printed are the medians. */
#include "base/clock.h"
#include "base/futex.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { TURNS = 2001 };

static atomic_uint word;
static int sleeps;

/* Waits until the word is `value`, then counts it up. */
static void answer(unsigned value)
{
    for (unsigned seen; (seen = atomic_load(&word)) != value;)
        if (sleeps)
            futex_wait(&word, seen, CLOCK_NEVER);
    atomic_store(&word, value + 1);
    if (sleeps)
        futex_wake_all(&word);
}

static void *other_side(void *unused)
{
    for (unsigned turn = 0; turn < TURNS; turn++)
        answer(2 * turn + 1);
    return unused;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double one_way(void)
{
    static int64_t times[TURNS];
    pthread_t thread;
    atomic_store(&word, 0);
    if (pthread_create(&thread, NULL, other_side, NULL))
        exit(1);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        int64_t start = clock_now();
        answer(2 * turn);
        while (atomic_load(&word) != 2 * turn + 2)
            if (sleeps)
                futex_wait(&word, 2 * turn + 1, CLOCK_NEVER);
        times[turn] = clock_now() - start;
    }
    pthread_join(thread, NULL);
    qsort(times, TURNS, sizeof *times, compare);
    return (double)times[TURNS / 2] / 2e3;
}

int main(void)
{
    printf("spinning %.3f\n", one_way());
    sleeps = 1;
    printf("asleep %.3f\n", one_way());
    return 0;
}
