/* allgather_ring.c - blocks of any length: first the lengths go around, then the blocks.
 *
 *   lengths, 4 ranks: round k gives the 2^k latest ones on to the rank 2^k further; a phase for each round
 *              rank 0    rank 1    rank 2    rank 3
 *   has        0         1         2         3
 *   round 0    3 0       0 1       1 2       2 3         sends one length to r + 1
 *   round 1    1 2 3 0   2 3 0 1   3 0 1 2   0 1 2 3     sends two lengths to r + 2
 *
 *   blocks, turn t: send block r - t to r + 1, receive block r - t - 1 from r - 1
 *
 *   cost: log2(n) + n - 1 steps; each rank sends all blocks but one, and 8(n-1) bytes a tensor.
 *
 * While the lengths go around, the job's output is the table of lengths. */
#include "base/status.h"
#include "coll/job.h"
#include "coll/pattern.h"

#include <stdlib.h>
#include <string.h>

/* ---- lengths -------------------------------------------------------------------------------------- */

/* The job's scratch: three tables of [rank * tensors + tensor]. */
struct lengths {
    struct span span; /* of the rows, as a vector */
    size_t start;
    struct vector output; /* the job's own, put aside */
    uint64_t *bytes;      /* how long a block is */
    uint64_t *offsets;    /* where in the output it lies */
    uint64_t rows[];      /* what the ranks say */
};

static hvd_code lengths_begin(struct job *job, hvd_status *status)
{
    size_t tensors = (size_t)job->tensors;
    size_t entries = (size_t)job->size * tensors;
    struct lengths *lengths = malloc(sizeof *lengths + 3 * entries * sizeof(uint64_t));
    if (!lengths)
        return status_set(status, HVD_OUT_OF_MEMORY, "no memory for the lengths of allgather's %d tensors",
                          job->tensors);
    lengths->bytes = lengths->rows + entries;
    lengths->offsets = lengths->bytes + entries;
    lengths->span = (struct span){(char *)lengths->rows, entries * sizeof(uint64_t)};
    memcpy(lengths->rows + (size_t)job->rank * tensors, job->own_rows, tensors * sizeof(uint64_t));
    lengths->output = job->output;
    job->scratch = lengths;
    job->output = (struct vector){&lengths->span, &lengths->start, 1, 0};
    vector_measure(&job->output);
    return HVD_OK;
}

/* The lengths of `count` ranks from rank `first` on, around the end. */
static void lengths_add(const struct job *job, enum step_kind kind, int peer, int first, int count,
                        struct schedule *schedule)
{
    size_t row = (size_t)job->tensors * sizeof(uint64_t);
    int to_end = job->size - first;
    int head = count < to_end ? count : to_end;
    struct step step = {.kind = kind, .buffer = BUFFER_OUTPUT, .peer = peer, .gate = STEP_NO_GATE};
    step.offset = (size_t)first * row;
    step.length = (size_t)head * row;
    schedule_add(schedule, step);
    step.offset = 0;
    step.length = (size_t)(count - head) * row;
    schedule_add(schedule, step);
}

static void plan_lengths(const struct job *job, int round, struct schedule *schedule)
{
    int distance = 1 << round;
    int missing = job->size - distance;
    int count = distance < missing ? distance : missing;
    int to = pattern_shift(job->rank, distance, job->size);
    int from = pattern_shift(job->rank, -distance, job->size);
    lengths_add(job, STEP_SEND, to, pattern_shift(job->rank, 1 - count, job->size), count, schedule);
    lengths_add(job, STEP_RECEIVE, from, pattern_shift(from, 1 - count, job->size), count, schedule);
}

/* ---- blocks --------------------------------------------------------------------------------------- */

/* The blocks of a tensor lie one after the other by rank, and the tensors one after the other. */
static hvd_code blocks_lay_out(const struct job *job, hvd_status *status)
{
    struct lengths *lengths = job->scratch;
    uint64_t end = 0;
    for (int tensor = 0; tensor < job->tensors; tensor++) {
        for (int rank = 0; rank < job->size; rank++) {
            size_t entry = (size_t)rank * (size_t)job->tensors + (size_t)tensor;
            lengths->offsets[entry] = end;
            if (__builtin_mul_overflow(lengths->rows[entry], job->row_bytes[tensor],
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

static struct step block_step(const struct job *job, enum step_kind kind, int peer, int rank, int tensor)
{
    const struct lengths *lengths = job->scratch;
    size_t entry = (size_t)rank * (size_t)job->tensors + (size_t)tensor;
    return (struct step){.kind = kind,
                         .buffer = BUFFER_OUTPUT,
                         .peer = peer,
                         .gate = STEP_NO_GATE,
                         .offset = lengths->offsets[entry],
                         .length = lengths->bytes[entry]};
}

/* This rank's own blocks go out from the input, so that they need not wait for the copy. */
static void plan_own(const struct job *job, int right, struct schedule *schedule)
{
    size_t from = 0;
    for (int tensor = 0; tensor < job->tensors; tensor++) {
        struct step copy = block_step(job, STEP_COPY, 0, job->rank, tensor);
        copy.from = from;
        schedule_add(schedule, copy);
        struct step send = block_step(job, STEP_SEND, right, job->rank, tensor);
        send.buffer = BUFFER_INPUT;
        send.offset = from;
        if (job->size > 1)
            schedule_add(schedule, send);
        from += copy.length;
    }
}

static void plan_blocks(const struct job *job, struct schedule *schedule)
{
    int left = pattern_shift(job->rank, -1, job->size);
    int right = pattern_shift(job->rank, 1, job->size);
    plan_own(job, right, schedule);
    for (int turn = 1; turn < job->size; turn++) {
        int rank = pattern_shift(job->rank, -turn, job->size);
        for (int tensor = 0; tensor < job->tensors; tensor++) {
            int receive = schedule_add(schedule, block_step(job, STEP_RECEIVE, left, rank, tensor));
            struct step send = block_step(job, STEP_SEND, right, rank, tensor);
            send.gate = receive;
            if (rank != right)
                schedule_add(schedule, send);
        }
    }
}

static hvd_code plan(struct job *job, int phase, struct schedule *schedule, bool *more, hvd_status *status)
{
    int rounds = pattern_rounds(job->size);
    *more = phase < rounds;
    if (phase == 0 && lengths_begin(job, status) != HVD_OK)
        return HVD_OUT_OF_MEMORY;
    if (phase < rounds) {
        plan_lengths(job, phase, schedule);
        return HVD_OK;
    }
    struct lengths *lengths = job->scratch;
    job->output = lengths->output;
    hvd_code code = blocks_lay_out(job, status);
    if (code == HVD_OK)
        code = job->gathered(job, lengths->rows, status);
    if (code == HVD_OK)
        plan_blocks(job, schedule);
    return code;
}

const struct algorithm allgather_ring = {.name = "ring", .operation = HVD_ALLGATHER, .plan = plan};
