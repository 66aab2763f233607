/* copying.h - how a rank stores what another one reads, or has read, from shared memory.
 *
 * An ordinary store first takes the cache line away from the core that read it last. Between cores that share
 * a cache this is cheap; between others it was measured to take 50 to 100 ns, one line after the other: 1
 * GB/s. Stores past the caches ask nobody, but then the reader has to go to memory: 15 to 20 GB/s anywhere.
 * Which way is better depends on where the two ranks run just now; so copies are timed, and from time to time
 * a part goes the other way. */
#ifndef HVD_TRANSPORT_COPYING_H
#define HVD_TRANSPORT_COPYING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum copying_way { COPYING_CACHED, COPYING_STREAMED, COPYING_WAYS };

/* What one writer knows of one reader; zeroed memory is valid. */
struct copying {
    double cost[COPYING_WAYS]; /* of a byte, in ticks of the processor's clock, smoothed; 0: unknown */
    enum copying_way way;
    size_t until_trial; /* bytes before the other way is tried again */
    size_t interval;    /* between trials; doubles while they change nothing */
};

/* Like memcpy; a store with release order after it publishes the bytes. NULL: with ordinary stores. */
void copying_copy(struct copying *copying, void *to, const void *from, size_t length);

/* Past the caches in any case. */
void copying_stream(void *to, const void *from, size_t length);

/* For those who compute what they store: begin says which way this transfer goes, end learns from it. The
 * same copying for transfers of one kind only; NULL: with ordinary stores. */
struct copying_transfer {
    enum copying_way way;
    bool timed;
    uint64_t begin;
};
struct copying_transfer copying_begin(struct copying *copying, size_t length);
void copying_end(struct copying *copying, const struct copying_transfer *transfer, size_t length);

/* A byte cost so much on this way: makes the better way the copying's. */
void copying_learn(struct copying *copying, enum copying_way way, double cost);

#endif
