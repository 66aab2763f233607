/* alltoall_routed.c - a block for every other rank: first their lengths, then the blocks, on the same ways.
 *
 *   Up to 8 ranks all have links to each other, and a block goes straight. Beyond, it goes the shorter way
 *   round in jumps of 2^k, one for each bit of the distance, the smallest first; 10 ranks, from rank 0
 *     to 1: +1   2: +2   3: +1 +2   4: +4   5: +1 +4   6: -4   7: -1 -2   8: -2   9: -1
 *     so the block from 0 to 3 passes through 1, and that from 0 to 7 through 9
 *
 *   cost: log2(n) jumps, twice; each rank sends its own blocks and those that pass through it (none up to 8
 *   ranks; 3 besides 9 of its own with 10 ranks, 10 besides 15 with 16), and 8 bytes more for each.
 *
 * The links of the graph are enough (pattern.h). A block passes on byte by byte as it comes in. In the first
 * phase every block is one number, how many rows the block of the second phase has; so a rank learns the
 * lengths of what it gets and of what it passes on, and of nothing else. */
#include "base/status.h"
#include "coll/collective.h"
#include "coll/pattern.h"

#include <stdlib.h>
#include <string.h>

/* Where the block lies that passes through here to a rank at some distance from its origin. */
struct passing {
    int slot, receive; /* of the output; the step after which it is there */
};

/* The collective's scratch. A slot is a place of the output: slot r takes the block from rank r, the further
 * ones take blocks that pass through. */
struct routes {
    struct vector input, output; /* the collective's own, put aside */
    struct span from, to[2];     /* what the vectors consist of meanwhile, and later the output */
    size_t from_start, to_starts[2];
    int slots;
    size_t tables; /* bytes, this struct included; after them, in the second phase, what passes through */
    struct range *sources;   /* [size]: in the input, by the rank they go to */
    struct range *places;    /* [slots] */
    uint64_t *rows;          /* [slots] */
    struct passing *passing; /* [2 * size]: by direction and distance */
};

/* ---- the way -------------------------------------------------------------------------------------- */

/* The farthest rank to the right (+1) or left (-1) that blocks reach in this direction. */
static int reach(int direction, int size)
{
    return direction > 0 ? size / 2 : (size - 1) / 2;
}

static int bits_of(int distance)
{
    return __builtin_popcount((unsigned)distance);
}

static int count_slots(int size)
{
    int slots = size;
    if (size <= PATTERN_COMPLETE)
        return slots;
    for (int direction = -1; direction <= 1; direction += 2)
        for (int distance = 1; distance <= reach(direction, size); distance++)
            slots += bits_of(distance) - 1;
    return slots;
}

static struct step step_of(enum step_kind kind, enum step_buffer buffer, int peer, struct range range)
{
    return (struct step){.kind = kind,
                         .buffer = buffer,
                         .peer = peer,
                         .gate = STEP_NO_GATE,
                         .offset = range.offset,
                         .length = range.length};
}

/* One jump of the blocks that go so far: this rank's, or what came through here, goes out; one comes in. */
static void plan_jump(const struct collective *collective, int direction, int distance, int round,
                      int *next_slot, struct schedule *schedule)
{
    const struct routes *routes = collective->scratch;
    int jump = direction * (1 << round);
    bool first = !(distance & ((1 << round) - 1)), last = distance >> round == 1;
    struct passing *passing = &routes->passing[2 * distance - (direction > 0)];
    int to = pattern_shift(collective->rank, jump, collective->size),
        from = pattern_shift(collective->rank, -jump, collective->size);
    int destination = pattern_shift(collective->rank, direction * distance, collective->size);
    int origin = pattern_shift(collective->rank, -direction * distance, collective->size);
    struct step send = step_of(STEP_SEND, BUFFER_INPUT, to, routes->sources[destination]);
    if (!first) {
        send = step_of(STEP_SEND, BUFFER_OUTPUT, to, routes->places[passing->slot]);
        send.gate = passing->receive;
    }
    schedule_add(schedule, send);
    int slot = last ? origin : (*next_slot)++;
    int receive = schedule_add(schedule, step_of(STEP_RECEIVE, BUFFER_OUTPUT, from, routes->places[slot]));
    *passing = (struct passing){slot, receive};
}

static void plan_straight(const struct collective *collective, struct schedule *schedule)
{
    const struct routes *routes = collective->scratch;
    for (int distance = 1; distance < collective->size; distance++) {
        int to = pattern_shift(collective->rank, distance, collective->size);
        int from = pattern_shift(collective->rank, -distance, collective->size);
        schedule_add(schedule, step_of(STEP_SEND, BUFFER_INPUT, to, routes->sources[to]));
        schedule_add(schedule, step_of(STEP_RECEIVE, BUFFER_OUTPUT, from, routes->places[from]));
    }
}

static void plan_jumps(const struct collective *collective, struct schedule *schedule)
{
    int next_slot = collective->size;
    for (int round = 0; round < pattern_rounds(collective->size); round++)
        for (int direction = 1; direction >= -1; direction -= 2)
            for (int distance = 1; distance <= reach(direction, collective->size); distance++)
                if (distance >> round & 1)
                    plan_jump(collective, direction, distance, round, &next_slot, schedule);
}

static void plan_ways(const struct collective *collective, struct schedule *schedule)
{
    const struct routes *routes = collective->scratch;
    struct step own = step_of(STEP_COPY, BUFFER_OUTPUT, 0, routes->places[collective->rank]);
    own.from = routes->sources[collective->rank].offset;
    schedule_add(schedule, own);
    if (collective->size <= PATTERN_COMPLETE)
        plan_straight(collective, schedule);
    else
        plan_jumps(collective, schedule);
}

/* ---- the lengths ---------------------------------------------------------------------------------- */

/* The tables behind the struct; it may have moved. */
static void routes_locate(struct routes *routes, int size)
{
    routes->sources = (struct range *)(routes + 1);
    routes->places = routes->sources + size;
    routes->rows = (uint64_t *)(routes->places + routes->slots);
    routes->passing = (struct passing *)(routes->rows + routes->slots);
}

static hvd_code lengths_begin(struct collective *collective, hvd_status *status)
{
    size_t size = (size_t)collective->size, slots = (size_t)count_slots(collective->size);
    size_t tables = sizeof(struct routes) + (size + slots) * sizeof(struct range) + slots * sizeof(uint64_t) +
                    2 * size * sizeof(struct passing);
    struct routes *routes = malloc(tables);
    if (!routes)
        return status_set(status, HVD_OUT_OF_MEMORY, "no memory for the ways of alltoall's blocks");
    *routes = (struct routes){
        .input = collective->input, .output = collective->output, .slots = (int)slots, .tables = tables};
    routes_locate(routes, collective->size);
    for (size_t rank = 0; rank < size; rank++)
        routes->sources[rank] = (struct range){rank * sizeof(uint64_t), sizeof(uint64_t)};
    for (size_t slot = 0; slot < slots; slot++)
        routes->places[slot] = (struct range){slot * sizeof(uint64_t), sizeof(uint64_t)};
    routes->from = (struct span){(char *)collective->own_rows, size * sizeof(uint64_t)};
    routes->to[0] = (struct span){(char *)routes->rows, slots * sizeof(uint64_t)};
    collective->input = (struct vector){&routes->from, &routes->from_start, 1, routes->from.length};
    collective->output = (struct vector){routes->to, routes->to_starts, 1, routes->to[0].length};
    collective->scratch = routes;
    return HVD_OK;
}

/* ---- the blocks ----------------------------------------------------------------------------------- */

/* Blocks lie one after the other, in the input by destination, in the output by slot. */
static hvd_code lay_out(const struct collective *collective, const uint64_t *rows, int count,
                        struct range *ranges, hvd_status *status)
{
    size_t end = 0;
    for (int i = 0; i < count; i++) {
        ranges[i].offset = end;
        if (__builtin_mul_overflow(rows[i], collective->row_bytes[0], &ranges[i].length) ||
            __builtin_add_overflow(end, ranges[i].length, &end))
            return status_set(status, HVD_OUT_OF_MEMORY,
                              "alltoall's blocks have more bytes than memory can have; one has %llu rows",
                              (unsigned long long)rows[i]);
    }
    return HVD_OK;
}

/* Room for what passes through, behind the tables. */
static hvd_code make_room(struct collective *collective, size_t bytes, hvd_status *status)
{
    struct routes *routes = collective->scratch;
    size_t whole;
    bool fits_memory = !__builtin_add_overflow(routes->tables, bytes, &whole);
    struct routes *larger = fits_memory ? realloc(routes, whole) : NULL;
    if (!larger)
        return status_set(status, HVD_OUT_OF_MEMORY,
                          "no memory for %zu bytes of alltoall that pass through rank %d", bytes,
                          collective->rank);
    routes_locate(larger, collective->size);
    larger->to[1] = (struct span){(char *)larger + larger->tables, bytes};
    collective->scratch = larger;
    return HVD_OK;
}

static hvd_code blocks_begin(struct collective *collective, hvd_status *status)
{
    struct routes *routes = collective->scratch;
    collective->input = routes->input;
    collective->output = routes->output;
    hvd_code code = lay_out(collective, collective->own_rows, collective->size, routes->sources, status);
    if (!code)
        code = lay_out(collective, routes->rows, routes->slots, routes->places, status);
    if (code)
        return code;
    const struct range *last = &routes->places[routes->slots - 1],
                       *own = &routes->places[collective->size - 1];
    size_t result = own->offset + own->length;
    code = make_room(collective, last->offset + last->length - result, status);
    routes = collective->scratch;
    if (!code)
        code = collective->gathered(collective, routes->rows, status);
    if (code)
        return code;
    routes->to[0] = (struct span){collective->output.count ? collective->output.spans[0].data : NULL, result};
    collective->output = (struct vector){routes->to, routes->to_starts, 2, 0};
    vector_measure(&collective->output);
    return HVD_OK;
}

static hvd_code plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status)
{
    *more = phase == 0;
    hvd_code code = phase == 0 ? lengths_begin(collective, status) : blocks_begin(collective, status);
    if (!code)
        plan_ways(collective, schedule);
    return code;
}

const struct algorithm alltoall_routed = {.name = "routed", .operation = HVD_ALLTOALL, .plan = plan};
