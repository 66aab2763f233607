/* schedule.h - what one rank does in one phase of a collective: a list of steps, written by an algorithm,
 * carried out by the executor (execute.h).
 *
 * Steps with the same peer and direction happen in the order in which they were added, here and over all
 * schedules of a communicator; everything else may overlap. A step may be gated by an earlier one of the same
 * schedule: it then touches a byte of the vector only after the gate has finished with that byte and those
 * before it, so a ring flows without being cut into chunks by hand. The ranges of the two may differ: bytes
 * in front of the gate's range are open at once, those behind it when the gate is done.
 * Steps without a peer happen in the order in which they were added, too. */
#ifndef HVD_COLL_SCHEDULE_H
#define HVD_COLL_SCHEDULE_H

#include "horovod.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum step_kind {
    STEP_SEND,    /* buffer[range] to the peer */
    STEP_RECEIVE, /* output[range] = what the peer sent */
    STEP_REDUCE,  /* output[range] = buffer[range] op what the peer sent, times the factor if `last` */
    STEP_COPY,    /* output[range] = input[from, from + length), prescaled, times the factor if `last` */
    STEP_COMPUTE  /* calls the algorithm's `compute` for one chunk of the range after the other */
};

enum step_buffer { BUFFER_INPUT, BUFFER_OUTPUT };

#define STEP_NO_GATE (-1)

struct step {
    enum step_kind kind;
    enum step_buffer buffer;
    bool last; /* the final value of this range: apply the average and the postscale factor */
    int peer;
    int gate;              /* index of the gating step or STEP_NO_GATE */
    size_t offset, length; /* bytes of the vector; whole elements */
    size_t from;           /* STEP_COPY: where in the input */
};

struct schedule {
    struct step *steps;
    int count, capacity;
    bool failed; /* memory ran out while adding */
};

/* Whether the step moves nothing between ranks. */
bool step_is_local(const struct step *step);

void schedule_clear(struct schedule *schedule); /* keeps the memory */
void schedule_free(struct schedule *schedule);
int schedule_add(struct schedule *schedule,
                 struct step step); /* its index; steps of no bytes are added too */

#endif
