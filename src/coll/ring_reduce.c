/* ring_reduce.c - see ring_reduce.h. */
#include "coll/ring_reduce.h"

struct ring ring_of_all(const struct collective *collective)
{
    const struct topology *topology = collective->topology;
    return (struct ring){.left = pattern_ring(topology, collective->rank, -1),
                         .right = pattern_ring(topology, collective->rank, 1),
                         .place = topology->place_of[collective->rank],
                         .size = collective->size};
}

static struct contribution own_part(const struct collective *collective, const struct ring *ring,
                                    struct range block, struct schedule *schedule)
{
    return ring->own ? *ring->own : contribution_add(collective, block, schedule);
}

struct contribution ring_reduce(const struct collective *collective, const struct ring *ring,
                                struct range piece, block_fn block_of, int first, struct schedule *schedule)
{
    int turns = ring->size - 1;
    struct range block = block_of(collective, piece, ring->size, first);
    struct contribution outgoing = own_part(collective, ring, block, schedule);
    for (int turn = 1; turn <= turns; turn++) {
        step_add(schedule, STEP_SEND, ring->right, block, outgoing);
        block = block_of(collective, piece, ring->size, pattern_shift(first, -turn, ring->size));
        struct contribution own = own_part(collective, ring, block, schedule);
        int reduce = step_add(schedule, STEP_REDUCE, ring->left, block, own);
        outgoing = (struct contribution){BUFFER_OUTPUT, reduce};
    }
    step_set_last(schedule, outgoing.gate);
    return outgoing;
}

void ring_gather(const struct collective *collective, const struct ring *ring, struct range piece,
                 block_fn block_of, struct contribution reduced, complete_fn complete,
                 struct schedule *schedule)
{
    struct contribution outgoing = reduced;
    for (int turn = 0; turn < ring->size; turn++) {
        int index = pattern_shift(ring->place, 1 - turn, ring->size);
        struct range block = block_of(collective, piece, ring->size, index);
        if (turn)
            outgoing =
                (struct contribution){BUFFER_OUTPUT, step_add(schedule, STEP_RECEIVE, ring->left, block,
                                                              (struct contribution){.gate = STEP_NO_GATE})};
        if (complete)
            complete(collective, block, outgoing, schedule);
        if (turn < ring->size - 1) /* what comes in goes out in the next turn as it is */
            step_add(schedule, STEP_SEND, ring->right, block, outgoing);
    }
}
