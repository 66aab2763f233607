/* barrier_dissemination.c - barrier: in round k every rank reports to the rank 2^k further that 2^k ranks
 * have arrived. Pure planning; the executor's thread.
 *
 *   5 ranks     rank 0 knows of       sends to
 *   round 0     0                     1
 *   round 1     4 0                   2
 *   round 2     2 3 4 0               4          receives 3 4 0 1 from 1: all have arrived
 *
 *   cost: ceil(log2(n)) steps of one byte.
 *
 * All steps use the same byte, whose value has no meaning; it makes the steps wait for each other. */
#include "base/status.h"
#include "coll/collective.h"
#include "coll/pattern.h"

#include <stdlib.h>

/* The collective's scratch: a vector of one byte. */
struct token {
    struct span span;
    size_t start;
    char byte;
};

static hvd_code plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status)
{
    (void)phase, (void)more;
    struct token *token = calloc(1, sizeof *token);
    if (!token)
        return status_no_memory(status);
    token->span = (struct span){&token->byte, 1};
    collective->scratch = token;
    collective->output = (struct vector){&token->span, &token->start, 1, 1};
    struct step send = {.kind = STEP_SEND, .buffer = BUFFER_OUTPUT, .gate = STEP_NO_GATE, .length = 1};
    struct step receive = {.kind = STEP_RECEIVE, .gate = STEP_NO_GATE, .length = 1};
    for (int round = 0; round < pattern_rounds(collective->size); round++) {
        int distance = 1 << round;
        send.peer = pattern_shift(collective->rank, distance, collective->size);
        receive.peer = pattern_shift(collective->rank, -distance, collective->size);
        schedule_add(schedule, send);
        /* Both steps of the next round wait for this one, and thus for all earlier rounds. */
        send.gate = receive.gate = schedule_add(schedule, receive);
    }
    return HVD_OK;
}

const struct algorithm barrier_dissemination = {
    .name = "dissemination", .operation = HVD_BARRIER, .plan = plan};
