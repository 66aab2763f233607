/* allgather_ring.c - allgather of blocks of any length: ranks exchange the lengths unless they are known,
 * then the blocks around a ring; flat or by hosts. Pure planning; the executor's thread.
 *
 *   lengths, 4 ranks: round k passes the 2^k latest ones to the rank 2^k further; one phase a round
 *              rank 0    rank 1    rank 2    rank 3
 *   has        0         1         2         3
 *   round 0    3 0       0 1       1 2       2 3         sends one length to r + 1
 *   round 1    1 2 3 0   2 3 0 1   3 0 1 2   0 1 2 3     sends two lengths to r + 2
 *
 *   blocks, turn t, p: places, host by host: send block p - t to p + 1, receive block p - t - 1 from p - 1
 *
 *   cost: n - 1 steps; each rank sends all blocks but one. Lengths: log2(n) steps, and 8(n-1) bytes a tensor.
 *
 *   hosts A (ranks 0 1 2) and B (ranks 3 4); carriers 0, 1 of A and 3, 4 of B
 *   within the hosts    2 sends its block to 0: the carrier is local rank modulo carriers
 *   between the hosts   0 -> 3 blocks 0 and 2     1 -> 4 block 1     3 -> 0 block 3     4 -> 1 block 4
 *   within the hosts    each carrier sends its blocks to the other ranks of its host
 *
 *   cost: h + 1 steps on h hosts, and those of the lengths; each host receives all blocks but those of its
 * own ranks.
 *
 * While the lengths go around, the collective's output is the table of lengths. */
#include "base/status.h"
#include "coll/hierarchy.h"

#include <stdlib.h>
#include <string.h>

/* ---- lengths -------------------------------------------------------------------------------------- */

/* The collective's scratch: three tables of [rank * tensors + tensor]. */
struct lengths {
    struct span span; /* the rows, as a vector */
    size_t start;
    struct vector output; /* the collective's output, saved */
    uint64_t *bytes;      /* length of a block */
    uint64_t *offsets;    /* where the block starts in the output */
    uint64_t rows[];      /* rows of all ranks, while lengths are exchanged */
};

static hvd_code begin(struct collective *collective, hvd_status *status)
{
    size_t tensors = (size_t)collective->tensors;
    size_t entries = (size_t)collective->size * tensors;
    struct lengths *lengths = malloc(sizeof *lengths + 3 * entries * sizeof(uint64_t));
    if (!lengths)
        return status_no_memory(status);
    lengths->bytes = lengths->rows + entries;
    lengths->offsets = lengths->bytes + entries;
    collective->scratch = lengths;
    return HVD_OK;
}

static void lengths_begin(struct collective *collective)
{
    struct lengths *lengths = collective->scratch;
    size_t tensors = (size_t)collective->tensors;
    size_t entries = (size_t)collective->size * tensors;
    lengths->span = (struct span){(char *)lengths->rows, entries * sizeof(uint64_t)};
    memcpy(lengths->rows + (size_t)collective->rank * tensors, collective->own_rows,
           tensors * sizeof(uint64_t));
    lengths->output = collective->output;
    collective->output = (struct vector){&lengths->span, &lengths->start, 1, 0};
    vector_measure(&collective->output);
}

/* Restores the output and completes it with the rows that have arrived. */
static hvd_code lengths_end(struct collective *collective, hvd_status *status)
{
    const struct lengths *lengths = collective->scratch;
    collective->output = lengths->output;
    return collective->gathered(collective, lengths->rows, status);
}

/* Adds steps for the lengths of `count` ranks from rank `first` on, modulo size. */
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

/* Computes where blocks are in the output: ordered by tensor, then by rank. The output has as many bytes, so
 * nothing overflows. */
static void blocks_lay_out(const struct collective *collective)
{
    struct lengths *lengths = collective->scratch;
    const uint64_t *rows = collective->rows ? collective->rows : lengths->rows;
    uint64_t end = 0;
    for (int tensor = 0; tensor < collective->tensors; tensor++) {
        for (int rank = 0; rank < collective->size; rank++) {
            size_t entry = (size_t)rank * (size_t)collective->tensors + (size_t)tensor;
            lengths->offsets[entry] = end;
            lengths->bytes[entry] = rows[entry] * collective->row_bytes[tensor];
            end += lengths->bytes[entry];
        }
    }
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

/* A block that passes through this rank. */
struct passage {
    int turn;    /* of the ring */
    int rank;    /* the rank that owns the block */
    int carrier; /* local rank that carries the block on every host */
    int tensor;
    size_t from; /* where this rank's own block starts in the input */
};

static int source_of(const struct hierarchy *hierarchy, const struct passage *passage)
{
    if (passage->carrier != hierarchy->local_rank)
        return hierarchy_rank(hierarchy, hierarchy->host, passage->carrier);
    return passage->turn ? hierarchy_across(hierarchy, -1) : passage->rank;
}

/* Plans one block. This rank's own block is sent from the input, so that it need not wait for the copy. */
static void plan_block(const struct collective *collective, const struct hierarchy *hierarchy,
                       const struct passage *passage, struct schedule *schedule)
{
    bool own = passage->rank == collective->rank, carries = passage->carrier == hierarchy->local_rank;
    struct step step = block_step(collective, own ? STEP_COPY : STEP_RECEIVE, source_of(hierarchy, passage),
                                  passage->rank, passage->tensor);
    step.from = passage->from;
    int here = schedule_add(schedule, step);
    step.kind = STEP_SEND;
    step.gate = own ? STEP_NO_GATE : here;
    step.buffer = own ? BUFFER_INPUT : BUFFER_OUTPUT;
    step.offset = own ? passage->from : step.offset;
    if (own && !carries) /* to its carrier */
        schedule_add(schedule, step);
    if (!carries)
        return;
    step.peer = hierarchy_across(hierarchy, 1);
    if (passage->turn < hierarchy->hosts - 1)
        schedule_add(schedule, step);
    for (int distance = 1; distance < hierarchy->local_size; distance++) {
        step.peer = hierarchy_neighbour(hierarchy, distance);
        if (step.peer != passage->rank)
            schedule_add(schedule, step);
    }
}

static void plan_blocks(const struct collective *collective, struct schedule *schedule)
{
    const struct lengths *lengths = collective->scratch;
    struct hierarchy hierarchy = hierarchy_of(collective);
    struct passage passage = {0};
    for (; passage.turn < hierarchy.hosts; passage.turn++) {
        int host = pattern_shift(hierarchy.host, -passage.turn, hierarchy.hosts);
        for (int local_rank = 0; local_rank < hierarchy_host_size(&hierarchy, host); local_rank++) {
            passage.rank = hierarchy_rank(&hierarchy, host, local_rank);
            passage.carrier = local_rank % hierarchy.carriers;
            for (passage.tensor = 0; passage.tensor < collective->tensors; passage.tensor++) {
                plan_block(collective, &hierarchy, &passage, schedule);
                if (passage.rank == collective->rank)
                    passage.from += lengths->bytes[(size_t)passage.rank * (size_t)collective->tensors +
                                                   (size_t)passage.tensor];
            }
        }
    }
}

static hvd_code plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status)
{
    int rounds = collective->rows ? 0 : pattern_rounds(collective->size);
    *more = phase < rounds;
    if (phase == 0) {
        TRY(begin(collective, status));
        if (!collective->rows)
            lengths_begin(collective);
    }
    if (phase < rounds) {
        plan_lengths(collective, phase, schedule);
        return HVD_OK;
    }
    if (!collective->rows)
        TRY(lengths_end(collective, status));
    blocks_lay_out(collective);
    plan_blocks(collective, schedule);
    return HVD_OK;
}

const struct algorithm allgather_ring = {.name = "ring", .operation = HVD_ALLGATHER, .plan = plan};
const struct algorithm allgather_hierarchical = {.name = "hierarchical",
                                                 .operation = HVD_ALLGATHER,
                                                 .fits = hierarchy_fits,
                                                 .by_hosts = true,
                                                 .plan = plan};
