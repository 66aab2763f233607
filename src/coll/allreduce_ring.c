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
#include "coll/ring_reduce.h"

/* A long vector goes round in pieces: what was reduced is sent on while it lies in the cache. */
#define PIECE_LIMIT 128

static struct range piece_of(const struct collective *collective, int pieces, int index)
{
    return pattern_block(collective->output.length, hvd_dtype_size(collective->dtype), pieces, index);
}

static int count_pieces(const struct collective *collective)
{
    size_t pieces = collective->output.length / ((size_t)collective->size * collective->piece_bytes);
    return pieces < 1 ? 1 : pieces > PIECE_LIMIT ? PIECE_LIMIT : (int)pieces;
}

static struct range block_of(const struct collective *collective, struct range piece, int index)
{
    struct range block =
        pattern_block(piece.length, hvd_dtype_size(collective->dtype), collective->size, index);
    block.offset += piece.offset;
    return block;
}

static int receive_from_left(const struct collective *collective, struct schedule *schedule,
                             struct range block)
{
    return schedule_add(schedule,
                        (struct step){.kind = STEP_RECEIVE,
                                      .peer = pattern_ring(collective->topology, collective->rank, -1),
                                      .gate = STEP_NO_GATE,
                                      .offset = block.offset,
                                      .length = block.length});
}

/* What comes in goes out in the next turn as it is. */
static void ring_gather(const struct collective *collective, struct range piece, struct contribution outgoing,
                        struct schedule *schedule)
{
    int place = collective->topology->place_of[collective->rank];
    for (int turn = 0; turn < collective->size - 1; turn++) {
        int to_send = pattern_shift(place, 1 - turn, collective->size);
        ring_send(collective, block_of(collective, piece, to_send), outgoing, schedule);
        int to_receive = pattern_shift(place, -turn, collective->size);
        int receive = receive_from_left(collective, schedule, block_of(collective, piece, to_receive));
        outgoing = (struct contribution){BUFFER_OUTPUT, receive};
    }
}

/* The allgather of a piece follows the reducing of the next one, so that a link never waits for its neighbour
 * to have reduced. */
static hvd_code plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status)
{
    (void)phase, (void)more, (void)status;
    int pieces = count_pieces(collective), place = collective->topology->place_of[collective->rank];
    struct contribution reduced = {0};
    for (int i = 0; i <= pieces; i++) {
        struct contribution before = reduced;
        if (i < pieces)
            reduced = ring_reduce(collective, piece_of(collective, pieces, i), block_of, place, schedule);
        if (i > 0)
            ring_gather(collective, piece_of(collective, pieces, i - 1), before, schedule);
    }
    return HVD_OK;
}

const struct algorithm allreduce_ring = {
    .name = "ring", .operation = HVD_ALLREDUCE, .plan = plan, .ordered_ranks = 2};
