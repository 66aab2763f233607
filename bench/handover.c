/* handover.c - GB/s at which a thread fills a ring of shared memory that another thread reads, with ordinary
 * stores and non-temporal ones (base/nontemporal.h), and at which the system copies what another thread has
 * written: the slowest, the median and the fastest of rounds that take turns. */
#include "base/clock.h"
#include "base/nontemporal.h"
#include "base/platform_memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ROUNDS = 41,
    CHUNK = 32 << 10,
    DIRECT_CHUNK = 128 << 10,
    RING = 2 << 20,
    DATA = 4 << 20,
    TOTAL = 16 << 20
};

static _Alignas(4096) char ring[RING], source[DATA], target[DATA], copied[DATA];
static _Alignas(128) _Atomic size_t written;
static _Alignas(128) _Atomic size_t read_so_far;

static void wait_for(_Atomic size_t *count, size_t least)
{
    while (atomic_load_explicit(count, memory_order_acquire) < least)
        ;
}

static void *reader(void *unused)
{
    for (size_t at = 0; at < (size_t)2 * ROUNDS * TOTAL; at += CHUNK) {
        wait_for(&written, at + CHUNK);
        memcpy(target + at % DATA, ring + at % RING, CHUNK);
        atomic_store_explicit(&read_so_far, at + CHUNK, memory_order_release);
    }
    return unused;
}

/* Until all of it was read. */
static double gigabytes_per_second(size_t begin, void (*copy)(void *to, const void *from, size_t length))
{
    int64_t start = clock_now();
    for (size_t at = begin; at < begin + TOTAL; at += CHUNK) {
        /* Only what was read may be written over. */
        if (at >= RING)
            wait_for(&read_so_far, at + CHUNK - RING);
        copy(ring + at % RING, source + at % DATA, CHUNK);
        atomic_store_explicit(&written, at + CHUNK, memory_order_release);
    }
    wait_for(&read_so_far, begin + TOTAL);
    /* Bytes in a nanosecond are gigabytes in a second. */
    return TOTAL / (double)(clock_now() - start);
}

/* The reader has written `target` before; 0 where the system forbids it. */
static double gigabytes_per_second_directly(void)
{
    int64_t start = clock_now();
    for (size_t at = 0; at < TOTAL; at += DIRECT_CHUNK) {
        uint64_t from = (uintptr_t)(target + at % DATA);
        if (platform_memory_read(getpid(), copied + at % DATA, from, DIRECT_CHUNK) != DIRECT_CHUNK)
            return 0;
    }
    return TOTAL / (double)(clock_now() - start);
}

static void copy_cached(void *to, const void *from, size_t length)
{
    memcpy(to, from, length);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *way, double *rates)
{
    qsort(rates, ROUNDS, sizeof *rates, compare);
    printf("%s %.1f %.1f %.1f\n", way, rates[0], rates[ROUNDS / 2], rates[ROUNDS - 1]);
}

int main(void)
{
    static double cached[ROUNDS], nontemporal[ROUNDS], direct[ROUNDS];
    pthread_t thread;
    memset(source, 1, sizeof source);
    if (pthread_create(&thread, NULL, reader, NULL))
        return 1;
    for (int i = 0; i < ROUNDS; i++) {
        cached[i] = gigabytes_per_second((size_t)2 * (size_t)i * TOTAL, copy_cached);
        nontemporal[i] = gigabytes_per_second((size_t)(2 * i + 1) * TOTAL, nontemporal_copy);
        direct[i] = gigabytes_per_second_directly();
    }
    pthread_join(thread, NULL);
    print("cached", cached);
    print("nontemporal", nontemporal);
    print("direct", direct);
    return 0;
}
