/* allreduce_ring.c - for long vectors: reduce-scatter around the ring, then allgather around the ring.
 *
 *   4 ranks, vector cut into blocks 0 1 2 3; each arrow goes to the right neighbour, 3 -> 0
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

static bool fits(uint64_t bytes, int size, uint64_t latency_threshold)
{
    (void)bytes, (void)size, (void)latency_threshold;
    return true;
}

static struct range block_of(const struct job *job, int index)
{
    return pattern_block(job->output.length, hvd_dtype_size(job->dtype), job->size, index);
}

static int receive_from_left(const struct job *job, struct schedule *schedule, struct range block)
{
    return schedule_add(schedule, (struct step){.kind = STEP_RECEIVE,
                                                .peer = pattern_shift(job->rank, -1, job->size),
                                                .gate = STEP_NO_GATE,
                                                .offset = block.offset,
                                                .length = block.length});
}

static hvd_code plan(struct job *job, int phase, struct schedule *schedule, bool *more, hvd_status *status)
{
    (void)phase, (void)status;
    *more = false;
    if (job->size == 1)
        return allreduce_plan_alone(job, schedule);
    struct contribution outgoing = ring_reduce(job, block_of, job->rank, schedule);
    /* Allgather: what comes in goes out in the next turn as it is. */
    for (int turn = 0; turn < job->size - 1; turn++) {
        int to_send = pattern_shift(job->rank, 1 - turn, job->size);
        ring_send(job, block_of(job, to_send), outgoing, schedule);
        int to_receive = pattern_shift(job->rank, -turn, job->size);
        int receive = receive_from_left(job, schedule, block_of(job, to_receive));
        outgoing = (struct contribution){BUFFER_OUTPUT, receive};
    }
    return HVD_OK;
}

const struct algorithm allreduce_ring = {
    .name = "ring", .operation = HVD_ALLREDUCE, .fits = fits, .plan = plan};
