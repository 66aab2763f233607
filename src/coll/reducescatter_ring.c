/* reducescatter_ring.c - reducescatter: every rank's block is reduced on its way around the ring, which ends
 * at its rank; flat or by hosts. Pure planning; the executor's thread.
 *
 *   4 ranks, block r is rank r's rows; each arrow goes to the right neighbour, 3 -> 0 (the numbers are
 *   places: the ring goes host by host)
 *            rank 0    rank 1    rank 2    rank 3
 *   turn 0   sends 3   sends 0   sends 1   sends 2     the receiver adds its own rows
 *   turn 1   sends 2   sends 3   sends 0   sends 1
 *   turn 2   sends 1   sends 2   sends 3   sends 0     now rank r has block r complete, and scales it
 *
 *   cost: n-1 steps; each rank sends all blocks except its own: the least possible.
 *
 *   hosts A (ranks 0 1 2) and B (ranks 3 4); carriers 0, 1 of A and 3, 4 of B
 *   round 0   within the hosts   0 adds up its host's parts of blocks 0 and 3, 1: of 1 and 4; so do 3 and 4
 *             between the hosts  0 sends block 3 to 3, 3 sends block 0 to 0; so do 1 and 4
 *   round 1   0 and 3 do the same with block 2, and 0 sends it to 2: carried by local rank modulo carriers
 *
 *   cost: h + 1 steps a round; each host sends all blocks except its ranks': the least possible.
 *
 * Blocks may differ in length and be empty. A block is added in the order of the ring, so the same inputs
 * give the same bits in every run. Blocks on their way are in the output, next to the result. */
#include "coll/hierarchy.h"

static struct range block_of(const struct collective *collective, const struct hierarchy *hierarchy,
                             int carrier, int host, int round)
{
    int local_rank = carrier + round * hierarchy->carriers;
    if (local_rank >= hierarchy_host_size(hierarchy, host))
        return (struct range){0};
    int rank = hierarchy_rank(hierarchy, host, local_rank);
    size_t element = hvd_dtype_size(collective->dtype);
    size_t start = collective->blocks[rank] / element, end = collective->blocks[rank + 1] / element;
    return (struct range){start, end - start};
}

/* Plans the way of a block from its carrier to its rank if they differ. */
static void deliver(const struct collective *collective, const struct hierarchy *hierarchy, int round,
                    struct contribution complete, struct schedule *schedule)
{
    int me = hierarchy->local_rank, carrier = me % hierarchy->carriers;
    int owner = carrier + round * hierarchy->carriers;
    if (round == 0 || owner >= hierarchy->local_size)
        return;
    struct range block = block_of(collective, hierarchy, carrier, hierarchy->host, round);
    if (me == carrier)
        step_add(schedule, STEP_SEND, hierarchy_rank(hierarchy, hierarchy->host, owner), block, complete);
    else if (me == owner)
        step_add(schedule, STEP_RECEIVE, hierarchy_rank(hierarchy, hierarchy->host, carrier), block,
                 (struct contribution){.gate = STEP_NO_GATE});
}

static hvd_code plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status)
{
    (void)phase, (void)more, (void)status;
    struct hierarchy hierarchy = hierarchy_of(collective);
    int rounds = 1;
    for (int host = 0; host < hierarchy.hosts; host++)
        while (rounds * hierarchy.carriers < hierarchy_host_size(&hierarchy, host))
            rounds++;
    for (int round = 0; round < rounds; round++) {
        struct contribution complete = hierarchy_reduce(collective, &hierarchy, block_of, round, schedule);
        deliver(collective, &hierarchy, round, complete, schedule);
    }
    return HVD_OK;
}

const struct algorithm reducescatter_ring = {.name = "ring", .operation = HVD_REDUCESCATTER, .plan = plan};
const struct algorithm reducescatter_hierarchical = {.name = "hierarchical",
                                                     .operation = HVD_REDUCESCATTER,
                                                     .fits = hierarchy_fits,
                                                     .by_hosts = true,
                                                     .plan = plan};
