/* ring_reduce.c - see ring_reduce.h. */
#include "coll/ring_reduce.h"

void ring_send(const struct collective *collective, struct range block, struct contribution source,
               struct schedule *schedule)
{
    schedule_add(schedule, (struct step){.kind = STEP_SEND,
                                         .buffer = source.buffer,
                                         .peer = pattern_ring(collective->topology, collective->rank, 1),
                                         .gate = source.gate,
                                         .offset = block.offset,
                                         .length = block.length});
}

static int reduce_from_left(const struct collective *collective, struct range block, bool last,
                            struct schedule *schedule)
{
    struct contribution own = contribution_add(collective, block, schedule);
    return schedule_add(schedule,
                        (struct step){.kind = STEP_REDUCE,
                                      .buffer = own.buffer,
                                      .last = last,
                                      .peer = pattern_ring(collective->topology, collective->rank, -1),
                                      .gate = own.gate,
                                      .offset = block.offset,
                                      .length = block.length});
}

struct contribution ring_reduce(const struct collective *collective, struct range piece, block_fn block_of,
                                int first, struct schedule *schedule)
{
    int turns = collective->size - 1;
    struct range block = block_of(collective, piece, first);
    struct contribution outgoing = contribution_add(collective, block, schedule);
    for (int turn = 1; turn <= turns; turn++) {
        ring_send(collective, block, outgoing, schedule);
        block = block_of(collective, piece, pattern_shift(first, -turn, collective->size));
        int reduce = reduce_from_left(collective, block, turn == turns, schedule);
        outgoing = (struct contribution){BUFFER_OUTPUT, reduce};
    }
    return outgoing;
}
