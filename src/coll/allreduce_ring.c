/* allreduce_ring.c - for long vectors: reduce-scatter around the ring, then allgather around the ring.
 *
 *   4 ranks, vector cut into blocks 0 1 2 3; each arrow goes to the right neighbour, 3 -> 0 (the numbers are
 *   places: the ring goes host by host)
 *              rank 0    rank 1    rank 2    rank 3
 *   reduce 0   sends 0   sends 1   sends 2   sends 3     the receiver adds its own block
 *   reduce 1   sends 3   sends 0   sends 1   sends 2
 *   reduce 2   sends 2   sends 3   sends 0   sends 1     now rank r has block r+1 complete, and scales it
 *   gather 0   sends 1   sends 2   sends 3   sends 0     complete blocks go around
 *   gather 1   sends 0   sends 1   sends 2   sends 3
 *   gather 2   sends 3   sends 0   sends 1   sends 2
 *
 *   cost: 2(n-1) steps; each rank sends 2(n-1)/n of the vector: the least possible.
 *
 * Gates let each block flow byte by byte, so nothing waits for whole blocks. A complete block overwrites what
 * this rank has sent of it; no byte of it can come back earlier, since it contains what was sent. */
#include "coll/pattern.h"

/* The allgather of a piece follows the reducing of the next one, so that a link never waits for its neighbour
 * to have reduced. */
static hvd_code plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status)
{
    (void)phase, (void)more, (void)status;
    struct ring ring = ring_of_all(collective);
    struct range whole = whole_of(collective);
    int pieces = count_pieces(collective, collective->size);
    struct contribution reduced = {0};
    for (int i = 0; i <= pieces; i++) {
        struct contribution before = reduced;
        if (i < pieces)
            reduced = ring_reduce(collective, &ring, part_of(collective, whole, pieces, i), part_of,
                                  ring.place, schedule);
        if (i > 0)
            ring_gather(collective, &ring, part_of(collective, whole, pieces, i - 1), part_of, before, NULL,
                        schedule);
    }
    return HVD_OK;
}

const struct algorithm allreduce_ring = {
    .name = "ring", .operation = HVD_ALLREDUCE, .plan = plan, .ordered_ranks = 2};
