/* hierarchy.h - ranks in two levels: within a host, whose ranks share memory, and between hosts, around rings
 * of *carriers*, one on each host. What goes host by host, and what a flat ring of all ranks does, is planned
 * here once: flat, every rank counts as a host of its own.
 *
 *   hosts A (ranks 0 1 2) and B (ranks 3 4); as many carriers as the smallest host has ranks
 *   carrier 0: ring 0 <-> 3      carrier 1: ring 1 <-> 4      2 gives to 0 and 1, and gets from them
 *
 * What a ring passes around are blocks, one for each host, in turns; a plan may go around several times.
 * Steps of all ranks follow one order: by round, by turn, so none waits for a later one. */
#ifndef HVD_COLL_HIERARCHY_H
#define HVD_COLL_HIERARCHY_H

#include "coll/pattern.h"

struct hierarchy {
    const struct topology *topology;
    bool flat;
    int hosts, carriers;
    int host, local_rank, local_size; /* this rank's */
};

/* As the collective's algorithm goes: by hosts or flat. */
struct hierarchy hierarchy_of(const struct collective *collective);

/* Whether there is anything to gain: several hosts, one of them with several ranks. */
bool hierarchy_fits(uint64_t bytes, const struct topology *topology, uint64_t latency_threshold);

int hierarchy_host_size(const struct hierarchy *hierarchy, int host);
int hierarchy_rank(const struct hierarchy *hierarchy, int host, int local_rank);

/* The rank of this host that is `distance` local ranks further, around the end. */
int hierarchy_neighbour(const struct hierarchy *hierarchy, int distance);

/* The rank with this rank's local rank, which a carrier's is on every host, `distance` hosts further. */
int hierarchy_across(const struct hierarchy *hierarchy, int distance);

/* The block of a host in a round of a carrier's ring; may be empty. */
typedef struct range (*block_fn)(const struct collective *collective, const struct hierarchy *hierarchy,
                                 int carrier, int host, int round);

/* Hosts add up their own parts, rings those of the hosts. At the end each carrier has the block of its own
 * host complete and scaled: the return value. A ring's block starts at the host behind its own.
 *
 * A carrier adds up its host's parts in the order of local ranks from its own on. */
struct contribution hierarchy_reduce(const struct collective *collective, const struct hierarchy *hierarchy,
                                     block_fn block_of, int round, struct schedule *schedule);

/* Every carrier's block, `complete` on this one, reaches all ranks: around its ring, and from each carrier to
 * the others of its host. A complete byte overwrites the one that was sent, and can't come earlier, since it
 * contains that. */
void hierarchy_gather(const struct collective *collective, const struct hierarchy *hierarchy,
                      block_fn block_of, int round, struct contribution complete, struct schedule *schedule);

#endif
