/* hierarchy.h - ranks in two levels: within a host, whose ranks share memory, and between hosts, around rings
 * of *carriers*, one on each host. The steps of both forms are planned here once: in a flat ring of all ranks
 * every rank counts as its own host. Pure functions; any thread.
 *
 *   hosts A (ranks 0 1 2) and B (ranks 3 4); as many carriers as the smallest host has ranks
 *   carrier 0: ring 0 <-> 3      carrier 1: ring 1 <-> 4      2 sends to 0 and 1, and receives from them
 *
 * A ring passes blocks around, one for each host, in turns; a plan may have several rounds. Steps of all
 * ranks are ordered by round, then by turn, so that none waits for a later one. */
#ifndef HVD_COLL_HIERARCHY_H
#define HVD_COLL_HIERARCHY_H

#include "coll/pattern.h"

struct hierarchy {
    const struct topology *topology;
    bool flat;
    int hosts, carriers;
    int host, local_rank, local_size; /* this rank's */
};

/* Returns the hierarchy of the collective's algorithm: by hosts, or flat. */
struct hierarchy hierarchy_of(const struct collective *collective);

/* Returns true if going by hosts can pay: several hosts, at least one of them with several ranks. */
bool hierarchy_fits(uint64_t bytes, const struct topology *topology, uint64_t latency_threshold);

int hierarchy_host_size(const struct hierarchy *hierarchy, int host);
int hierarchy_rank(const struct hierarchy *hierarchy, int host, int local_rank);

/* Returns the rank of this host that is `distance` local ranks further, modulo the host's ranks. */
int hierarchy_neighbour(const struct hierarchy *hierarchy, int distance);

/* Returns the rank `distance` hosts further that has this rank's local rank; every host has the carriers'. */
int hierarchy_across(const struct hierarchy *hierarchy, int distance);

/* Returns the block of a host in a round of a carrier's ring; may be empty. */
typedef struct range (*block_fn)(const struct collective *collective, const struct hierarchy *hierarchy,
                                 int carrier, int host, int round);

/* Plans a reduction: ranks of a host add their parts, then rings add those of the hosts. At the end each
 * carrier has the block of its own host, complete and scaled, which is returned. The block of a host starts
 * its way around the ring at the next host.
 *
 * A carrier adds up its host's parts in the order of local ranks from its own on. */
struct contribution hierarchy_reduce(const struct collective *collective, const struct hierarchy *hierarchy,
                                     block_fn block_of, int round, struct schedule *schedule);

/* Plans the way of every carrier's block, `complete` on this one, to all ranks: around its ring, and from
 * each carrier to the other ranks of its host. A complete byte overwrites the one that this rank sent; it
 * cannot arrive before that was sent, since it includes it. */
void hierarchy_gather(const struct collective *collective, const struct hierarchy *hierarchy,
                      block_fn block_of, int round, struct contribution complete, struct schedule *schedule);

#endif
