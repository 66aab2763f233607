/* allreduce.c - see allreduce.h. */
#include "coll/allreduce.h"

int copy_add(struct range range, bool last, struct schedule *schedule)
{
    return schedule_add(schedule, (struct step){.kind = STEP_COPY,
                                                .last = last,
                                                .gate = STEP_NO_GATE,
                                                .offset = range.offset,
                                                .length = range.length,
                                                .from = range.offset});
}

struct contribution contribution_add(const struct collective *collective, struct range range,
                                     struct schedule *schedule)
{
    if (collective->prescale == 1)
        return (struct contribution){BUFFER_INPUT, STEP_NO_GATE};
    return (struct contribution){BUFFER_OUTPUT, copy_add(range, false, schedule)};
}

int step_add(const struct collective *collective, struct schedule *schedule, enum step_kind kind, int peer,
             struct contribution source)
{
    return schedule_add(schedule, (struct step){.kind = kind,
                                                .buffer = source.buffer,
                                                .peer = peer,
                                                .gate = source.gate,
                                                .length = collective->output.length});
}
