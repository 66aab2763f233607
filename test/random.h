/* random.h - numbers from a seed (splitmix64), the same on every machine. */
#ifndef HVD_TEST_RANDOM_H
#define HVD_TEST_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

static inline uint64_t random_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline uint64_t random_next(uint64_t *state)
{
    return random_mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

/* In [0, n); 0 for n <= 1. */
static inline int64_t random_below(uint64_t *state, int64_t n)
{
    return n <= 1 ? 0 : (int64_t)(random_next(state) % (uint64_t)n);
}

static inline bool random_chance(uint64_t *state, int percent)
{
    return random_below(state, 100) < percent;
}

#endif
