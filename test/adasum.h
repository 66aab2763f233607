/* adasum.h - Adasum by its formula in float64, and the order in which ranks are merged. */
#ifndef HVD_TEST_ADASUM_H
#define HVD_TEST_ADASUM_H

#include "base/topology.h"

#include <stdbool.h>
#include <stddef.h>

/* a = a + b, of one tensor. */
static inline double adasum_factor(double square, double product)
{
    return square == 0 ? 1 : 1 - product / (2 * square);
}

static inline void adasum_merge(double *a, const double *b, size_t count)
{
    double aa = 0, bb = 0, ab = 0;
    for (size_t i = 0; i < count; i++) {
        aa += a[i] * a[i];
        bb += b[i] * b[i];
        ab += a[i] * b[i];
    }
    double fa = adasum_factor(aa, ab), fb = adasum_factor(bb, ab);
    for (size_t i = 0; i < count; i++)
        a[i] = fa * a[i] + fb * b[i];
}

enum { ADASUM_RANKS = 64 };

/* By the layout of the ranks: "lower" takes "upper" in; the first in the order of places is the result. */
struct adasum_order {
    struct {
        int lower, upper;
    } merges[ADASUM_RANKS];
    int count;
};

static inline void adasum_add_merge(struct adasum_order *order, int lower, int upper)
{
    order->merges[order->count].lower = lower;
    order->merges[order->count++].upper = upper;
}

static inline int adasum_power(int count)
{
    int power = 1;
    while (2 * power <= count)
        power *= 2;
    return power;
}

/* Those beyond the power of two fold in, then neighbours merge, pairs of them, and so on. */
static inline void adasum_in_halves(struct adasum_order *order, const int *members, int count)
{
    int power = adasum_power(count);
    for (int i = 0; i + power < count; i++)
        adasum_add_merge(order, members[i], members[i + power]);
    for (int distance = 1; distance < power; distance *= 2)
        for (int i = 0; i < power; i += 2 * distance)
            adasum_add_merge(order, members[i], members[i + distance]);
}

/* A rank takes in those that come 1, 2, 4, ... after it. */
static inline void adasum_on_host(struct adasum_order *order, const int *members, int count, int at, int from)
{
    for (int distance = 1; distance < from && at + distance < count; distance *= 2) {
        adasum_on_host(order, members, count, at + distance, distance);
        adasum_add_merge(order, members[at], members[at + distance]);
    }
}

static inline struct adasum_order adasum_order_of(const struct topology *topology)
{
    struct adasum_order order = {.count = 0};
    int leaders[ADASUM_RANKS], hosts = topology->hosts;
    bool alike = topology_is_homogeneous(topology) && adasum_power(topology->size) == topology->size;
    if (hosts == 1 || hosts == topology->size || alike) {
        adasum_in_halves(&order, topology->rank_at, topology->size);
        return order;
    }
    for (int host = 0; host < hosts; host++) {
        leaders[host] = topology_leader(topology, host);
        adasum_on_host(&order, topology->rank_at + topology->first[host], topology_host_size(topology, host),
                       0, ADASUM_RANKS);
    }
    adasum_in_halves(&order, leaders, hosts);
    return order;
}

#endif
