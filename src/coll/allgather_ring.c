/* allgather_ring.c - blocks of any length: first the lengths go around, then the blocks.
 *
 *   lengths, 4 ranks: round k gives the 2^k latest ones on to the rank 2^k further; a phase for each round
 *              rank 0    rank 1    rank 2    rank 3
 *   has        0         1         2         3
 *   round 0    3 0       0 1       1 2       2 3         sends one length to r + 1
 *   round 1    1 2 3 0   2 3 0 1   3 0 1 2   0 1 2 3     sends two lengths to r + 2
 *
 *   blocks, turn t, p: places, host by host: send block p - t to p + 1, receive block p - t - 1 from p - 1
 *
 *   cost: log2(n) + n - 1 steps; each rank sends all blocks but one, and 8(n-1) bytes a tensor.
 *
 * While the lengths go around, the collective's output is the table of lengths. */
#include "base/status.h"
#include "coll/collective.h"
#include "coll/pattern.h"

#include <stdlib.h>
#include <string.h>

/* ---- lengths -------------------------------------------------------------------------------------- */

/* The collective's scratch: three tables of [rank * tensors + tensor]. */
struct lengths {
    struct span span; /* of the rows, as a vector */
    size_t start;
    struct vector output; /* the collective's own, put aside */
    uint64_t *bytes;      /* how long a block is */
    uint64_t *offsets;    /* where in the output it lies */
    uint64_t rows[];      /* of all ranks */
};

static hvd_code lengths_begin(struct collective *collective, hvd_status *status)
{
    size_t tensors = (size_t)collective->tensors;
    size_t entries = (size_t)collective->size * tensors;
    struct lengths *lengths = malloc(sizeof *lengths + 3 * entries * sizeof(uint64_t));
    if (!lengths)
        return status_set(status, HVD_OUT_OF_MEMORY, "no memory for the lengths of allgather's %d tensors",
                          collective->tensors);
    lengths->bytes = lengths->rows + entries;
    lengths->offsets = lengths->bytes + entries;
    lengths->span = (struct span){(char *)lengths->rows, entries * sizeof(uint64_t)};
    memcpy(lengths->rows + (size_t)collective->rank * tensors, collective->own_rows,
           tensors * sizeof(uint64_t));
    lengths->output = collective->output;
    collective->scratch = lengths;
    collective->output = (struct vector){&lengths->span, &lengths->start, 1, 0};
    vector_measure(&collective->output);
    return HVD_OK;
}

/* The lengths of `count` ranks from rank `first` on, around the end. */
static void lengths_add(const struct collective *collective, enum step_kind kind, int peer, int first,
                        int count, struct schedule *schedule)
{
    size_t row = (size_t)collective->tensors * sizeof(uint64_t);
    int to_end = collective->size - first;
    int head = count < to_end ? count : to_end;
    struct step step = {.kind = kind, .buffer = BUFFER_OUTPUT, .peer = peer, .gate = STEP_NO_GATE};
    step.offset = (size_t)first * row;
    step.length = (size_t)head * row;
    schedule_add(schedule, step);
    step.offset = 0;
    step.length = (size_t)(count - head) * row;
    schedule_add(schedule, step);
}

static void plan_lengths(const struct collective *collective, int round, struct schedule *schedule)
{
    int distance = 1 << round;
    int missing = collective->size - distance;
    int count = distance < missing ? distance : missing;
    int to = pattern_shift(collective->rank, distance, collective->size);
    int from = pattern_shift(collective->rank, -distance, collective->size);
    lengths_add(collective, STEP_SEND, to, pattern_shift(collective->rank, 1 - count, collective->size),
                count, schedule);
    lengths_add(collective, STEP_RECEIVE, from, pattern_shift(from, 1 - count, collective->size), count,
                schedule);
}

/* ---- blocks --------------------------------------------------------------------------------------- */

/* The blocks of a tensor lie one after the other by rank, and the tensors one after the other. */
static hvd_code blocks_lay_out(const struct collective *collective, hvd_status *status)
{
    struct lengths *lengths = collective->scratch;
    uint64_t end = 0;
    for (int tensor = 0; tensor < collective->tensors; tensor++) {
        for (int rank = 0; rank < collective->size; rank++) {
            size_t entry = (size_t)rank * (size_t)collective->tensors + (size_t)tensor;
            lengths->offsets[entry] = end;
            if (__builtin_mul_overflow(lengths->rows[entry], collective->row_bytes[tensor],
                                       &lengths->bytes[entry]) ||
                __builtin_add_overflow(end, lengths->bytes[entry], &end))
                return status_set(
                    status, HVD_OUT_OF_MEMORY,
                    "allgather's result has more bytes than memory can have; rank %d gives %llu rows", rank,
                    (unsigned long long)lengths->rows[entry]);
        }
    }
    return HVD_OK;
}

static struct step block_step(const struct collective *collective, enum step_kind kind, int peer, int rank,
                              int tensor)
{
    const struct lengths *lengths = collective->scratch;
    size_t entry = (size_t)rank * (size_t)collective->tensors + (size_t)tensor;
    return (struct step){.kind = kind,
                         .buffer = BUFFER_OUTPUT,
                         .peer = peer,
                         .gate = STEP_NO_GATE,
                         .offset = lengths->offsets[entry],
                         .length = lengths->bytes[entry]};
}

/* This rank's own blocks go out from the input, so that they need not wait for the copy. */
static void plan_own(const struct collective *collective, int right, struct schedule *schedule)
{
    size_t from = 0;
    for (int tensor = 0; tensor < collective->tensors; tensor++) {
        struct step copy = block_step(collective, STEP_COPY, 0, collective->rank, tensor);
        copy.from = from;
        schedule_add(schedule, copy);
        struct step send = block_step(collective, STEP_SEND, right, collective->rank, tensor);
        send.buffer = BUFFER_INPUT;
        send.offset = from;
        if (collective->size > 1)
            schedule_add(schedule, send);
        from += copy.length;
    }
}

static void plan_blocks(const struct collective *collective, struct schedule *schedule)
{
    int left = pattern_ring(collective->topology, collective->rank, -1);
    int right = pattern_ring(collective->topology, collective->rank, 1);
    plan_own(collective, right, schedule);
    for (int turn = 1; turn < collective->size; turn++) {
        int rank = pattern_ring(collective->topology, collective->rank, -turn);
        for (int tensor = 0; tensor < collective->tensors; tensor++) {
            int receive = schedule_add(schedule, block_step(collective, STEP_RECEIVE, left, rank, tensor));
            struct step send = block_step(collective, STEP_SEND, right, rank, tensor);
            send.gate = receive;
            if (rank != right)
                schedule_add(schedule, send);
        }
    }
}

static hvd_code plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status)
{
    int rounds = pattern_rounds(collective->size);
    *more = phase < rounds;
    if (phase == 0 && lengths_begin(collective, status) != HVD_OK)
        return HVD_OUT_OF_MEMORY;
    if (phase < rounds) {
        plan_lengths(collective, phase, schedule);
        return HVD_OK;
    }
    struct lengths *lengths = collective->scratch;
    collective->output = lengths->output;
    hvd_code code = blocks_lay_out(collective, status);
    if (code == HVD_OK)
        code = collective->gathered(collective, lengths->rows, status);
    if (code == HVD_OK)
        plan_blocks(collective, schedule);
    return code;
}

const struct algorithm allgather_ring = {.name = "ring", .operation = HVD_ALLGATHER, .plan = plan};
