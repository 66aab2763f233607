/* reducescatter_ring.c - every rank's block is reduced on its way around the ring and ends with its rank.
 *
 *   4 ranks, block r is rank r's rows; each arrow goes to the right neighbour, 3 -> 0 (the numbers are
 *   places: the ring goes host by host)
 *            rank 0    rank 1    rank 2    rank 3
 *   turn 0   sends 3   sends 0   sends 1   sends 2     the receiver adds its own rows
 *   turn 1   sends 2   sends 3   sends 0   sends 1
 *   turn 2   sends 1   sends 2   sends 3   sends 0     now rank r has block r complete, and scales it
 *
 *   cost: n-1 steps; each rank sends all blocks but its own: the least possible.
 *
 * Blocks may differ in length and be empty. A block is added up in the order of the ring, so the same inputs
 * give the same bits in every run. Blocks on their way lie in the output beside the result. */
#include "coll/pattern.h"

static struct range block_of(const struct collective *collective, struct range piece, int count, int index)
{
    (void)piece, (void)count;
    int rank = collective->topology->rank_at[index];
    return (struct range){collective->blocks[rank], collective->blocks[rank + 1] - collective->blocks[rank]};
}

static hvd_code plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status)
{
    (void)phase, (void)more, (void)status;
    struct ring ring = ring_of_all(collective);
    ring_reduce(collective, &ring, (struct range){0, collective->input.length}, block_of,
                pattern_shift(ring.place, -1, ring.size), schedule);
    return HVD_OK;
}

const struct algorithm reducescatter_ring = {.name = "ring", .operation = HVD_REDUCESCATTER, .plan = plan};
