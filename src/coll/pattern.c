/* pattern.c - the arithmetic of blocks, rings and trees, and the functions that add single steps to a
 * schedule. Pure functions; any thread. All ranks compute the same patterns from the same numbers. */
#include "coll/pattern.h"

#include <stdbool.h>
#include <stdint.h>

#define LINE           64
#define LINES_PER_PART 4 /* below this, uneven parts cost more than shared cache lines */

struct range pattern_rows(size_t rows, int parts, int index)
{
    size_t ranks = (size_t)parts, at = (size_t)index;
    size_t each = rows / ranks, larger = rows % ranks;
    return (struct range){at * each + (at < larger ? at : larger), each + (at < larger)};
}

struct range pattern_block(size_t elements, size_t size, int parts, int index)
{
    size_t line = LINE / size;
    size_t unit = elements / line >= (size_t)parts * LINES_PER_PART ? line : 1;
    size_t units = elements / unit + (elements % unit != 0);
    struct range part = pattern_rows(units, parts, index);
    size_t start = part.offset * unit;
    size_t end = start + part.length * unit;
    start = start < elements ? start : elements;
    end = end < elements ? end : elements;
    return (struct range){start, end - start};
}

int pattern_shift(int rank, int distance, int size)
{
    int64_t place = ((int64_t)rank + distance) % size;
    return (int)(place < 0 ? place + size : place);
}

int pattern_rounds(int size)
{
    int rounds = 0;
    while (((int64_t)1 << rounds) < size)
        rounds++;
    return rounds;
}

int pattern_power(int size)
{
    int power = 1;
    while (power <= size / 2)
        power *= 2;
    return power;
}

/* Relative to the root, the tree is the same for every root: place 0 has the children 1, 2, 4, ...; the
 * parent of a place is that place without its lowest bit. */
int pattern_tree_parent(int rank, int root, int size)
{
    int place = pattern_shift(rank, -root, size);
    return place == 0 ? -1 : pattern_shift(place & (place - 1), root, size);
}

int pattern_tree_children(int rank, int root, int size, int children[PATTERN_CHILD_LIMIT])
{
    int place = pattern_shift(rank, -root, size);
    int count = 0;
    for (int bit = pattern_power(size); bit > 0; bit /= 2) {
        bool below_lowest_bit = (place & (2 * bit - 1)) == 0;
        if (below_lowest_bit && bit < size - place)
            children[count++] = pattern_shift(place + bit, root, size);
    }
    return count;
}

/* ---- steps ----------------------------------------------------------------------------------------- */

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
        return (struct contribution){BUFFER_INPUT, STEP_NO_GATE, false};
    return (struct contribution){BUFFER_OUTPUT, copy_add(range, false, schedule), false};
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

struct contribution reduce_add(struct schedule *schedule, int peer, struct range range,
                               struct contribution own, bool received_is_sum)
{
    int step = step_add(schedule, STEP_REDUCE, peer, range, own);
    if (!schedule->failed) {
        schedule->steps[step].own_is_sum = own.is_sum;
        schedule->steps[step].received_is_sum = received_is_sum;
    }
    return (struct contribution){BUFFER_OUTPUT, step, true};
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
