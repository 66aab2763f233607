/* path.c - measures the cost of stores and selects the cheaper ones. Under the progress lock. */
#include "transport/path.h"

#include "base/clock.h"
#include "base/nontemporal.h"

#include <string.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)

/* The writer sees only its own half of the price: what bypasses the caches costs the reader more. */
#define NONTEMPORAL_ADVANTAGE 4.0
#define NONTEMPORAL_LEAST     KIB(1)

#define TIMED_LEAST   KIB(8)   /* shorter copies say little */
#define TRIAL_FIRST   KIB(256) /* bytes until the other stores are tried again */
#define TRIAL_LONGEST MIB(64)

#define SHARED_LEAST MIB(1) /* smaller jobs are in a cache anyway */

static const char *const rule_names[] = {"auto", "ring", "nontemporal", "direct"};

bool path_rule_find(const char *name, enum path_rule *rule)
{
    for (int i = 0; i < PATH_RULES; i++) {
        if (strcmp(name, rule_names[i]) == 0) {
            *rule = (enum path_rule)i;
            return true;
        }
    }
    return false;
}

static uint64_t ticks(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#else
    return (uint64_t)clock_now();
#endif
}

static void put_off_trial(struct stores *stores)
{
    size_t longer = stores->trial.interval ? stores->trial.interval * 2 : TRIAL_FIRST;
    stores->trial.interval = longer < TRIAL_LONGEST ? longer : TRIAL_LONGEST;
    stores->trial.until = stores->trial.interval;
}

/* Rises slowly and falls fast: with more ranks than cores many a copy is interrupted. */
static double smoothed(double cost, double sample)
{
    double most = cost * 1.25;
    if (cost == 0 || sample * 4 < cost)
        return sample;
    return (cost + (sample < most ? sample : most)) / 2;
}

/* ---- stores ------------------------------------------------------------------------------------------- */

void stores_learn(struct stores *stores, enum store_way way, double cost)
{
    const double *known = stores->cost;
    stores->cost[way] = smoothed(known[way], cost);
    if (stores->forced)
        return;
    bool bypasses = known[STORE_NONTEMPORAL] > 0 &&
                    known[STORE_CACHED] > known[STORE_NONTEMPORAL] * NONTEMPORAL_ADVANTAGE;
    enum store_way better = bypasses ? STORE_NONTEMPORAL : STORE_CACHED;
    if (better != stores->way) {
        stores->trial.interval = 0;
        put_off_trial(stores);
    }
    stores->way = better;
}

struct store_transfer stores_begin(struct stores *stores, size_t length)
{
    enum store_way way = stores && length >= NONTEMPORAL_LEAST ? stores->way : STORE_CACHED;
    if (!stores || length < TIMED_LEAST)
        return (struct store_transfer){.way = way};
    stores->trial.until -= length < stores->trial.until ? length : stores->trial.until;
    if (!stores->forced && !stores->trial.until) {
        put_off_trial(stores);
        way = stores->way == STORE_CACHED ? STORE_NONTEMPORAL : STORE_CACHED;
    }
    return (struct store_transfer){.way = way, .timed = true, .begin = ticks()};
}

void stores_end(struct stores *stores, const struct store_transfer *transfer, size_t length)
{
    if (transfer->timed)
        stores_learn(stores, transfer->way, (double)(ticks() - transfer->begin) / (double)length);
}

void stores_copy(struct stores *stores, void *to, const void *from, size_t length)
{
    struct store_transfer transfer = stores_begin(stores, length);
    if (transfer.way == STORE_NONTEMPORAL)
        nontemporal_copy(to, from, length);
    else
        memcpy(to, from, length);
    stores_end(stores, &transfer, length);
}

/* ---- paths -------------------------------------------------------------------------------------------- */

int path_size(size_t batch_bytes)
{
    return batch_bytes < KIB(512) ? 0 : batch_bytes < MIB(8) ? 1 : 2;
}

void path_begin(struct path *path, enum path_rule rule)
{
    path->rule = rule;
    for (int size = 0; size < PATH_SIZES; size++) {
        struct stores *stores = &path->stores[size];
        stores->forced = rule == PATH_RING || rule == PATH_NONTEMPORAL;
        stores->way = rule == PATH_NONTEMPORAL ? STORE_NONTEMPORAL : STORE_CACHED;
    }
}

bool path_shares(const struct path *path, size_t batch_bytes)
{
    return path->rule == PATH_AUTO && batch_bytes >= SHARED_LEAST;
}
