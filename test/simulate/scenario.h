/* scenario.h - what happens in one run, drawn from its seed: the tree, the settings, what every rank asks
 * for, and what goes wrong. */
#ifndef SIMULATE_SCENARIO_H
#define SIMULATE_SCENARIO_H

#include "coordinate/request.h"

struct plan {          /* of one name in one round */
    uint64_t form;     /* what shape and priority are made from */
    uint64_t mismatch; /* 0: all ranks ask for the same */
};

struct scenario {
    uint64_t seed;
    int size, hosts, fanout;
    int *host_sizes;
    int names, rounds;
    bool lockstep; /* a round starts when all names of the one before are done; else each name by itself */
    int fresh_percent; /* names that are new in each round, as those of unnamed tensors */
    int variants;      /* different forms in a mismatch */
    uint64_t fusion_threshold;
    int64_t cycle_time;
    uint32_t cache_capacity;
    int64_t spread, delay, think, execution; /* longest times: between submissions, on an edge, ... */
    int duplicate_percent;
    int garbage_percent; /* of the runs' messages, times 1000 */
    bool finale;         /* every rank leaves when it is through */
    int leavers, cuts, losses, garbage;
    int64_t trouble;    /* about when they come */
    struct plan *plans; /* [names][rounds] */
};

void scenario_init(struct scenario *scenario, uint64_t seed, int ranks);
void scenario_free(struct scenario *scenario);

/* Name and signature of a rank's request. The bytes are malloc'd. */
void scenario_name(const struct scenario *scenario, int name, int round, char *text, size_t capacity);
struct signature scenario_signature(const struct scenario *scenario, int name, int round, int rank);
bool scenario_mismatch(const struct scenario *scenario, int name, int round);

#endif
