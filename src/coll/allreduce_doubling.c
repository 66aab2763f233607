/* allreduce_doubling.c - allreduce of short vectors: every rank exchanges the whole vector with partners at a
 * distance that doubles; ranks beyond a power of two fold in first and get the result last. Pure planning;
 * the executor's thread.
 *
 *   5 ranks               rank 0   rank 1   rank 2   rank 3   rank 4
 *   fold                  0+4  <---------------------------- sends
 *   round 0, distance 1   0+4+1 <-> same    2+3 <-> same
 *   round 1, distance 2   all      all      all      all          0 <-> 2, 1 <-> 3
 *   unfold                sends ---------------------------> all
 *
 *   cost: log2(n) steps, rounded down, and 2 more with folding; each rank sends the vector log2(n) times.
 *
 * Partners add the same two operands, the lower rank's first, so all ranks get the same bits. A sum
 * overwrites the vector that is being sent, so each reduction is gated by the send of its round. */
#include "coll/pattern.h"

static bool fits(uint64_t bytes, const struct topology *topology, uint64_t latency_threshold)
{
    (void)topology;
    return bytes <= latency_threshold;
}

/* Plans the steps of a rank beyond the power of two: it sends its part and receives the result. */
static void plan_folded(const struct collective *collective, struct schedule *schedule, int partner,
                        struct contribution value)
{
    int send = step_add(schedule, STEP_SEND, partner, whole_of(collective), value);
    step_add(schedule, STEP_RECEIVE, partner, whole_of(collective),
             (struct contribution){.buffer = BUFFER_OUTPUT, .gate = send});
}

static struct contribution exchange(const struct collective *collective, struct schedule *schedule,
                                    int distance, struct contribution value)
{
    int partner = collective->rank ^ distance;
    bool has_folded = partner + pattern_power(collective->size) < collective->size;
    value.gate = step_add(schedule, STEP_SEND, partner, whole_of(collective), value);
    return reduce_add(schedule, partner, whole_of(collective), value, distance > 1 || has_folded);
}

static hvd_code plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status)
{
    (void)phase, (void)more, (void)status;
    int power = pattern_power(collective->size);
    struct contribution value = contribution_add(collective, whole_of(collective), schedule);
    if (collective->rank >= power) {
        plan_folded(collective, schedule, collective->rank - power, value);
        return HVD_OK;
    }
    int folded = collective->rank + power < collective->size ? collective->rank + power : -1;
    if (folded >= 0)
        value = reduce_add(schedule, folded, whole_of(collective), value, false);
    for (int distance = 1; distance < power; distance *= 2)
        value = exchange(collective, schedule, distance, value);
    step_set_last(schedule, value.gate);
    if (folded >= 0)
        step_add(schedule, STEP_SEND, folded, whole_of(collective), value);
    return HVD_OK;
}

const struct algorithm allreduce_doubling = {
    .name = "doubling", .operation = HVD_ALLREDUCE, .fits = fits, .plan = plan, .ordered_ranks = 2};
