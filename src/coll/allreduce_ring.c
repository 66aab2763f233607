/* allreduce_ring.c - allreduce of long vectors: reduce-scatter around the ring, then allgather around the
 * ring; flat or by hosts. Pure planning; the executor's thread.
 *
 *   4 ranks, vector cut into blocks 0 1 2 3; each arrow goes to the right neighbour, 3 -> 0 (the numbers are
 *   places: the ring goes host by host)
 *              rank 0    rank 1    rank 2    rank 3
 *   reduce 0   sends 3   sends 0   sends 1   sends 2     the receiver adds its own block
 *   reduce 1   sends 2   sends 3   sends 0   sends 1
 *   reduce 2   sends 1   sends 2   sends 3   sends 0     now rank r has block r complete, and scales it
 *   gather 0   sends 0   sends 1   sends 2   sends 3     complete blocks go around
 *   gather 1   sends 3   sends 0   sends 1   sends 2
 *   gather 2   sends 2   sends 3   sends 0   sends 1
 *
 *   cost: 2(n-1) steps; each rank sends 2(n-1)/n of the vector: the least possible.
 *
 *   hosts A (ranks 0 1 2) and B (ranks 3 4); as many shards as the smallest host has ranks: 0 and 1
 *   within the hosts    0 gets shard 0 of 1, 2     1 gets shard 1 of 0, 2     3: of 4     4: of 3
 *   between the hosts   0 <-> 3 reduce shard 0 around a ring of hosts, 1 <-> 4 shard 1
 *   within the hosts    0 sends shard 0 to 1, 2    1 sends shard 1 to 0, 2    3: to 4     4: to 3
 *
 *   cost: 2(h-1) + 2 steps on h hosts; each host sends 2(h-1)/h of the vector, the least possible. Thakur,
 *   Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005.
 *
 * Gates let each block flow byte by byte, so no step waits for a whole block. */
#include "coll/hierarchy.h"

static int pieces_of(const struct collective *collective, const struct hierarchy *hierarchy)
{
    return count_pieces(collective, hierarchy->carriers * hierarchy->hosts);
}

static struct range block_of(const struct collective *collective, const struct hierarchy *hierarchy,
                             int carrier, int host, int round)
{
    struct range piece = part_of(collective, whole_of(collective), pieces_of(collective, hierarchy), round);
    struct range shard = part_of(collective, piece, hierarchy->carriers, carrier);
    return part_of(collective, shard, hierarchy->hosts, host);
}

/* Gathering a piece follows reducing the next one, so that a link never waits for its neighbour's reduction.
 */
static hvd_code plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status)
{
    (void)phase, (void)more, (void)status;
    struct hierarchy hierarchy = hierarchy_of(collective);
    int pieces = pieces_of(collective, &hierarchy);
    struct contribution reduced = {0};
    for (int i = 0; i <= pieces; i++) {
        struct contribution before = reduced;
        if (i < pieces)
            reduced = hierarchy_reduce(collective, &hierarchy, block_of, i, schedule);
        if (i > 0)
            hierarchy_gather(collective, &hierarchy, block_of, i - 1, before, schedule);
    }
    return HVD_OK;
}

const struct algorithm allreduce_ring = {
    .name = "ring", .operation = HVD_ALLREDUCE, .plan = plan, .ordered_ranks = 2};
const struct algorithm allreduce_hierarchical = {.name = "hierarchical",
                                                 .operation = HVD_ALLREDUCE,
                                                 .fits = hierarchy_fits,
                                                 .by_hosts = true,
                                                 .plan = plan,
                                                 .ordered_ranks = 2};
