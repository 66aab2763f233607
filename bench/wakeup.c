/* wakeup.c - microseconds until a waiting thread has seen what another wrote, one way: spinning on a core of
 * its own, yielding on a core that both share, asleep in a futex. Two threads hand one word to and fro;
 * medians. */
#include "base/clock.h"
#include "base/futex.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { TURNS = 2001 };

static atomic_uint word;
static void (*between_looks)(unsigned seen);

static void spin(unsigned seen)
{
    (void)seen;
}

static void yield(unsigned seen)
{
    (void)seen;
    sched_yield();
}

static void sleep_on_it(unsigned seen)
{
    futex_wait(&word, seen, CLOCK_NEVER);
}

/* Waits until the word is `value`, then counts it up. */
static void answer(unsigned value)
{
    for (unsigned seen; (seen = atomic_load(&word)) != value;)
        between_looks(seen);
    atomic_store(&word, value + 1);
    if (between_looks == sleep_on_it)
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
            between_looks(2 * turn + 1);
        times[turn] = clock_now() - start;
    }
    pthread_join(thread, NULL);
    qsort(times, TURNS, sizeof *times, compare);
    /* Nanoseconds there and back become microseconds one way. */
    return (double)times[TURNS / 2] / 2e3;
}

static void measure(const char *how, void (*wait)(unsigned seen))
{
    between_looks = wait;
    printf("%s %.3f\n", how, one_way());
}

int main(void)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_getaffinity(0, sizeof all, &all);
    measure("spinning", spin);
    sched_setaffinity(0, sizeof one, &one); /* the other thread inherits it */
    measure("yielding", yield);
    sched_setaffinity(0, sizeof all, &all);
    measure("asleep", sleep_on_it);
    return 0;
}
