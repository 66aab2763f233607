/* copying.c - see copying.h. The writer sees only its own half of the price: what it streams costs the reader
 * more, so streaming must be better by far. */
#include "transport/copying.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ADVANTAGE        4.0
#define TIMED_LEAST      ((size_t)8 << 10) /* shorter copies say little */
#define STREAMED_LEAST   ((size_t)1 << 10)
#define FIRST_INTERVAL   ((size_t)256 << 10)
#define LONGEST_INTERVAL ((size_t)64 << 20)
#define LINE             64

#if defined(__x86_64__)
#include <emmintrin.h>
#include <x86intrin.h>

static uint64_t ticks(void)
{
    return __rdtsc();
}

static void stream_lines(char *to, const char *from, size_t lines)
{
    for (; lines; lines--, to += LINE, from += LINE) {
        for (int at = 0; at < LINE; at += 16)
            _mm_stream_si128((__m128i *)(void *)(to + at),
                             _mm_loadu_si128((const __m128i *)(const void *)(from + at)));
    }
    _mm_sfence(); /* they keep no order by themselves */
}

static void copy(enum copying_way way, char *to, const char *from, size_t length)
{
    size_t head = way == COPYING_STREAMED ? -(uintptr_t)to % LINE : length;
    if (head > length)
        head = length;
    memcpy(to, from, head);
    if (head == length)
        return;
    size_t tail = (length - head) % LINE;
    stream_lines(to + head, from + head, (length - head) / LINE);
    memcpy(to + length - tail, from + length - tail, tail);
}

#else /* without such stores there is one way, and nothing to learn */

static uint64_t ticks(void)
{
    return 0;
}

static void copy(enum copying_way way, char *to, const char *from, size_t length)
{
    (void)way;
    memcpy(to, from, length);
}
#endif

/* Rises slowly and falls fast: with more ranks than cores many a copy is interrupted. */
static void smooth(double *cost, double sample)
{
    double most = *cost * 1.25;
    *cost = *cost == 0 ? sample : (*cost + (sample < most ? sample : most)) / 2;
}

void copying_learn(struct copying *copying, enum copying_way way, double cost)
{
    const double *known = copying->cost;
    smooth(&copying->cost[way], cost);
    bool streams = known[COPYING_STREAMED] > 0 && known[COPYING_CACHED] > known[COPYING_STREAMED] * ADVANTAGE;
    enum copying_way better = streams ? COPYING_STREAMED : COPYING_CACHED;
    if (better != copying->way)
        copying->interval = copying->until_trial = FIRST_INTERVAL;
    copying->way = better;
}

/* True when it is time for another trial. */
static bool due(struct copying *copying, size_t length)
{
    if (copying->until_trial > length) {
        copying->until_trial -= length;
        return false;
    }
    size_t longer = copying->interval ? copying->interval * 2 : FIRST_INTERVAL;
    copying->interval = longer < LONGEST_INTERVAL ? longer : LONGEST_INTERVAL;
    copying->until_trial = copying->interval;
    return true;
}

void copying_stream(void *to, const void *from, size_t length)
{
    copy(COPYING_STREAMED, to, from, length);
}

static enum copying_way other(enum copying_way way)
{
    return way == COPYING_CACHED ? COPYING_STREAMED : COPYING_CACHED;
}

struct copying_transfer copying_begin(struct copying *copying, size_t length)
{
    enum copying_way way = copying && length >= STREAMED_LEAST ? copying->way : COPYING_CACHED;
    if (!copying || length < TIMED_LEAST)
        return (struct copying_transfer){.way = way};
    if (due(copying, length))
        way = other(copying->way);
    return (struct copying_transfer){.way = way, .timed = true, .begin = ticks()};
}

void copying_end(struct copying *copying, const struct copying_transfer *transfer, size_t length)
{
    if (transfer->timed)
        copying_learn(copying, transfer->way, (double)(ticks() - transfer->begin) / (double)length);
}

void copying_copy(struct copying *copying, void *to, const void *from, size_t length)
{
    struct copying_transfer transfer = copying_begin(copying, length);
    copy(transfer.way, to, from, length);
    copying_end(copying, &transfer, length);
}
