/* allreduce.c - see allreduce.h. */
#include "coll/allreduce.h"

#define PIECE_LIMIT 128

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

int step_add(struct schedule *schedule, enum step_kind kind, int peer, struct range range,
             struct contribution source)
{
    return schedule_add(schedule, (struct step){.kind = kind,
                                                .buffer = source.buffer,
                                                .peer = peer,
                                                .gate = source.gate,
                                                .offset = range.offset,
                                                .length = range.length});
}

void step_set_last(struct schedule *schedule, int step)
{
    if (!schedule->failed)
        schedule->steps[step].last = true;
}

struct range part_of(const struct collective *collective, struct range range, int count, int index)
{
    struct range part = pattern_block(range.length, hvd_dtype_size(collective->dtype), count, index);
    part.offset += range.offset;
    return part;
}

int count_pieces(const struct collective *collective, int parts)
{
    size_t pieces = collective->output.length / ((size_t)parts * collective->piece_bytes);
    return pieces < 1 ? 1 : pieces > PIECE_LIMIT ? PIECE_LIMIT : (int)pieces;
}
