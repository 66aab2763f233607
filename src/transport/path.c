/* path.c - measures the cost of copies and chooses the cheapest path for the next bytes. Under the progress
 * lock. */
#include "transport/path.h"

#include "base/clock.h"
#include "base/nontemporal.h"
#include "base/platform.h"

#include <string.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)

/* The writer sees only its own half of the price: what bypasses the caches costs the reader more. */
#define NONTEMPORAL_ADVANTAGE 4.0
#define NONTEMPORAL_LEAST     KIB(1)

#define TIMED_LEAST KIB(8) /* shorter copies say little */
#define TRIALS      KIB(256), MIB(64)

#define SHARED_LEAST MIB(1) /* smaller jobs are in a cache anyway */

#define DIRECT_LEAST KIB(512) /* of a job: the writer of a smaller one would mostly wait for the reader */
#define DIRECT_RANGE KIB(32)  /* a shorter one is copied sooner than the kernel finds it */
#define DIRECT_TRIAL KIB(128)
/* The writer waits for the reader: where direct reads cost 0.7 of the ring by these sums, an allreduce of 4
 * MiB took 1.9 times as long with them. */
#define DIRECT_ADVANTAGE 3.0
#define DIRECT_PERIOD    MIB(16), MIB(128) /* before the ring is tried again */
#define RING_WARM        MIB(4)            /* a ring that was not used lately costs more at first */

#define COST_SPAN MIB(8) /* several operations: some only copy, others compute */
#define COPY_MOST 8      /* ticks a byte; a copy that took longer was interrupted */

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

uint64_t path_ticks(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#else
    return (uint64_t)clock_now();
#endif
}

static void trial_put_off(struct path_trial *trial, size_t first, size_t longest)
{
    size_t longer = trial->interval ? trial->interval * 2 : first;
    trial->interval = longer < longest ? longer : longest;
    trial->until = trial->interval;
}

static void trial_pass(struct path_trial *trial, size_t length)
{
    trial->until -= length < trial->until ? length : trial->until;
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

static enum store_way other(enum store_way way)
{
    return way == STORE_CACHED ? STORE_NONTEMPORAL : STORE_CACHED;
}

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
        trial_put_off(&stores->trial, TRIALS);
    }
    stores->way = better;
}

struct store_transfer stores_begin(struct stores *stores, size_t length)
{
    enum store_way way = stores && length >= NONTEMPORAL_LEAST ? stores->way : STORE_CACHED;
    if (!stores || length < TIMED_LEAST)
        return (struct store_transfer){.way = way};
    trial_pass(&stores->trial, length);
    if (!stores->forced && !stores->trial.until) {
        trial_put_off(&stores->trial, TRIALS);
        way = other(stores->way);
    }
    return (struct store_transfer){.way = way, .timed = true, .begin = path_ticks()};
}

void stores_end(struct stores *stores, const struct store_transfer *transfer, size_t length)
{
    if (transfer->timed)
        stores_learn(stores, transfer->way, (double)(path_ticks() - transfer->begin) / (double)length);
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

/* ---- ring or direct ----------------------------------------------------------------------------------- */

int path_size(size_t batch_bytes)
{
    return batch_bytes < DIRECT_LEAST ? 0 : batch_bytes < MIB(8) ? 1 : 2;
}

void path_begin(struct path *path, enum path_rule rule)
{
    path->rule = rule;
    for (int size = 0; size < PATH_SIZES; size++) {
        struct stores *stores = &path->sizes[size].stores;
        stores->forced = rule == PATH_RING || rule == PATH_NONTEMPORAL;
        stores->way = rule == PATH_NONTEMPORAL ? STORE_NONTEMPORAL : STORE_CACHED;
    }
}

bool path_shares(const struct path *path, size_t batch_bytes)
{
    return path->rule == PATH_AUTO && batch_bytes >= SHARED_LEAST;
}

void path_learn(struct path_cost *cost, uint64_t ticks, size_t bytes)
{
    if (bytes < TIMED_LEAST)
        return;
    uint64_t most = bytes * COPY_MOST;
    uint64_t sum = atomic_load_explicit(&cost->ticks, memory_order_relaxed) + (ticks < most ? ticks : most);
    uint64_t count = atomic_load_explicit(&cost->bytes, memory_order_relaxed) + bytes;
    int halve = count > COST_SPAN;
    atomic_store_explicit(&cost->ticks, sum >> halve, memory_order_relaxed);
    atomic_store_explicit(&cost->bytes, count >> halve, memory_order_relaxed);
}

void path_copy(struct path_cost *cost, void *to, const void *from, size_t bytes)
{
    uint64_t begin = bytes < TIMED_LEAST ? 0 : path_ticks();
    memcpy(to, from, bytes);
    if (begin)
        path_learn(cost, path_ticks() - begin, bytes);
}

static void forget(struct path_cost *cost)
{
    atomic_store_explicit(&cost->ticks, 0, memory_order_relaxed);
    atomic_store_explicit(&cost->bytes, 0, memory_order_relaxed);
}

/* Of a byte; 0: unknown. */
static double mean(const struct path_cost *cost)
{
    uint64_t bytes = atomic_load_explicit(&cost->bytes, memory_order_relaxed);
    return bytes ? (double)atomic_load_explicit(&cost->ticks, memory_order_relaxed) / (double)bytes : 0;
}

static bool direct_is_better(const struct path_choice *choice, const struct path_costs *read, int size)
{
    double write = choice->stores.cost[choice->stores.way], direct = mean(&read->direct[size]);
    return direct > 0 && direct * DIRECT_ADVANTAGE < write + mean(&read->ring[size]);
}

static size_t choose(struct path_choice *choice, struct path_costs *read, int size, size_t length)
{
    if (choice->direct && choice->ring_trial.until)
        return length;
    if (choice->direct) {
        choice->direct = false;
        choice->ring_bytes = 0;
        choice->direct_trial.until = 2 * RING_WARM; /* so what direct reads cost is still known then */
        forget(&read->ring[size]);                  /* it may be of other operations */
    }
    if (choice->ring_bytes >= RING_WARM && direct_is_better(choice, read, size)) {
        choice->direct = true;
        trial_put_off(&choice->ring_trial, DIRECT_PERIOD);
        return length;
    }
    if (choice->direct_trial.until)
        return 0;
    forget(&read->direct[size]);
    return length < DIRECT_TRIAL ? length : DIRECT_TRIAL;
}

size_t path_direct_bytes(struct path *path, size_t batch_bytes, struct path_costs *read, size_t length)
{
    int size = path_size(batch_bytes);
    if (path->rule != PATH_AUTO)
        return path->rule == PATH_DIRECT ? length : 0;
    if (batch_bytes < DIRECT_LEAST || length < DIRECT_RANGE)
        return 0;
    return choose(&path->sizes[size], read, size, length);
}

void path_sent(struct path *path, size_t batch_bytes, size_t bytes, bool direct)
{
    struct path_choice *choice = &path->sizes[path_size(batch_bytes)];
    if (path->rule != PATH_AUTO || batch_bytes < DIRECT_LEAST)
        return;
    if (!direct) {
        choice->ring_bytes += bytes;
        trial_pass(&choice->direct_trial, bytes);
    } else if (choice->direct) {
        trial_pass(&choice->ring_trial, bytes);
    } else {
        trial_put_off(&choice->direct_trial, TRIALS);
    }
}
