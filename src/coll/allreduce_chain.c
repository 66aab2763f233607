/* allreduce_chain.c - allreduce that adds every element in the order of ranks, ((0+1)+2)+..., for the
 * deterministic mode. Pure planning; the executor's thread.
 *
 *   4 ranks    rank 0        rank 1        rank 2        rank 3
 *   reduce     0        --->  0+1     --->  0+1+2   --->  all       the receiver adds its own vector
 *   return     all     <---   all    <---   all    <---   all      scaled by the last rank
 *
 *   cost: 2(n-1) steps; each rank sends the vector twice, the first and the last rank once.
 *
 * Gates let both directions flow byte by byte. The result overwrites the vector that this rank has sent on;
 * no byte of it can arrive before that was sent, since it includes it. */
#include "coll/pattern.h"

#include <limits.h>

static hvd_code plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status)
{
    (void)phase, (void)more, (void)status;
    int before = collective->rank - 1, after = collective->rank + 1;
    bool is_last = after == collective->size;
    struct contribution value = contribution_add(collective, whole_of(collective), schedule);
    if (before >= 0)
        value = reduce_add(schedule, before, whole_of(collective), value, before > 0);
    if (is_last)
        step_set_last(schedule, value.gate);
    if (!is_last) {
        step_add(schedule, STEP_SEND, after, whole_of(collective), value);
        value = (struct contribution){.buffer = BUFFER_OUTPUT, .gate = STEP_NO_GATE};
        value.gate = step_add(schedule, STEP_RECEIVE, after, whole_of(collective), value);
    }
    if (before >= 0)
        step_add(schedule, STEP_SEND, before, whole_of(collective), value);
    return HVD_OK;
}

const struct algorithm allreduce_chain = {
    .name = "chain", .operation = HVD_ALLREDUCE, .plan = plan, .ordered_ranks = INT_MAX};
