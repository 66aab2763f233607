/* broadcast_tree.c - broadcast down a binomial tree. Pure planning; the executor's thread.
 *
 *   5 ranks, root 0:   0 ---> 4        the largest subtree is served first
 *                      0 ---> 2 ---> 3
 *                      0 ---> 1
 *
 *   cost: log2(n) steps; every rank except the root receives the vector once, and sends it to each child.
 *
 * A rank passes on every byte as soon as it has it, so a long vector flows through all levels at once. */
#include "coll/collective.h"
#include "coll/pattern.h"

static hvd_code plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status)
{
    (void)phase, (void)more, (void)status;
    int children[PATTERN_CHILD_LIMIT];
    int count = pattern_tree_children(collective->rank, collective->root, collective->size, children);
    int parent = pattern_tree_parent(collective->rank, collective->root, collective->size);
    struct step step = {.gate = STEP_NO_GATE, .length = whole_of(collective).length};
    int receive = STEP_NO_GATE;
    if (parent >= 0) {
        step.kind = STEP_RECEIVE;
        step.peer = parent;
        receive = schedule_add(schedule, step);
    } else if (!vector_same(&collective->input, &collective->output)) {
        step.kind = STEP_COPY;
        schedule_add(schedule, step);
    }
    step.kind = STEP_SEND;
    step.buffer = parent >= 0 ? BUFFER_OUTPUT : BUFFER_INPUT;
    step.gate = receive;
    for (int i = 0; i < count; i++) {
        step.peer = children[i];
        schedule_add(schedule, step);
    }
    return HVD_OK;
}

const struct algorithm broadcast_tree = {.name = "tree", .operation = HVD_BROADCAST, .plan = plan};
