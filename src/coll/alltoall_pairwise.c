/* alltoall_pairwise.c - alltoall: every rank sends each other rank its block directly, after the lengths of
 * the blocks unless they are known. Pure planning; the executor's thread.
 *
 *   5 ranks; at each distance every rank sends to the right and receives from the left
 *     distance 1   0 > 1   1 > 2   2 > 3   3 > 4   4 > 0
 *     distance 2   0 > 2   1 > 3   2 > 4   3 > 0   4 > 1      and so on up to 4
 *
 *   cost: WINDOW distances at once, so up to 2 (n - 1) / WINDOW rounds; n - 1 blocks, 8 bytes more for each
 *
 * The window bounds how many links are opened and in use at a time, and lets all ranks go through them in one
 * order. Ranks may have windows of different sizes: the peers of the rank at the smallest distance have
 * reached that distance. Lengths are numbers of rows. */
#include "base/status.h"
#include "coll/collective.h"
#include "coll/pattern.h"

#include <stdlib.h>

#define WINDOW 32

/* The window for long blocks between hosts. More connections that start together overflow a switch's queue
 * (incast): Phanishayee and others, "Measurement and analysis of TCP throughput collapse in cluster-based
 * storage systems", 2008. */
#define LONG_WINDOW 4
#define LONG_BYTES  ((size_t)64 << 10) /* sum of all blocks of a rank */

/* The collective's scratch. */
struct exchange {
    struct vector input, output; /* the collective's vectors, saved while lengths are exchanged */
    struct span from, to;        /* the only spans of its vectors meanwhile */
    size_t from_start, to_start;
    struct range *sources; /* [size]: blocks in the input, by destination rank */
    struct range *places;  /* [size]: blocks in the output, by source rank */
    uint64_t *rows;        /* [size]: length of each block in `places`, while lengths are exchanged */
    int window;            /* for the blocks */
};

static hvd_code begin(struct collective *collective, hvd_status *status)
{
    size_t size = (size_t)collective->size, bytes = size * sizeof(uint64_t);
    struct exchange *exchange = malloc(sizeof *exchange + 2 * size * sizeof(struct range) + bytes);
    if (!exchange)
        return status_no_memory(status);
    *exchange = (struct exchange){.input = collective->input, .output = collective->output};
    exchange->sources = (struct range *)(exchange + 1);
    exchange->places = exchange->sources + size;
    exchange->rows = (uint64_t *)(exchange->places + size);
    collective->scratch = exchange;
    return HVD_OK;
}

static void lengths_begin(struct collective *collective)
{
    struct exchange *exchange = collective->scratch;
    size_t size = (size_t)collective->size, bytes = size * sizeof(uint64_t);
    for (size_t rank = 0; rank < size; rank++)
        exchange->sources[rank] = exchange->places[rank] =
            (struct range){rank * sizeof(uint64_t), sizeof(uint64_t)};
    exchange->from = (struct span){(char *)collective->own_rows, bytes};
    exchange->to = (struct span){(char *)exchange->rows, bytes};
    collective->input = (struct vector){&exchange->from, &exchange->from_start, 1, bytes};
    collective->output = (struct vector){&exchange->to, &exchange->to_start, 1, bytes};
}

/* Computes the ranges of blocks that follow one another in the order of ranks. The vectors have as many
 * bytes, so nothing overflows. */
static void lay_out(const struct collective *collective, const uint64_t *rows, struct range *ranges)
{
    size_t end = 0;
    for (int i = 0; i < collective->size; i++) {
        ranges[i] = (struct range){end, rows[i] * collective->row_bytes[0]};
        end += ranges[i].length;
    }
}

static hvd_code blocks_begin(struct collective *collective, hvd_status *status)
{
    struct exchange *exchange = collective->scratch;
    collective->input = exchange->input;
    collective->output = exchange->output;
    if (!collective->rows)
        TRY(collective->gathered(collective, exchange->rows, status));
    bool is_long = collective->topology->hosts > 1 && collective->input.length > LONG_BYTES;
    exchange->window = is_long ? LONG_WINDOW : WINDOW;
    lay_out(collective, collective->own_rows, exchange->sources);
    lay_out(collective, collective->rows ? collective->rows : exchange->rows, exchange->places);
    return HVD_OK;
}

static void plan_step(enum step_kind kind, enum step_buffer buffer, int peer, struct range range, size_t from,
                      struct schedule *schedule)
{
    schedule_add(schedule, (struct step){.kind = kind,
                                         .buffer = buffer,
                                         .peer = peer,
                                         .gate = STEP_NO_GATE,
                                         .offset = range.offset,
                                         .length = range.length,
                                         .from = from});
}

static void plan_window(const struct collective *collective, int first, int window, struct schedule *schedule)
{
    const struct exchange *exchange = collective->scratch;
    int rank = collective->rank, size = collective->size;
    if (first == 1)
        plan_step(STEP_COPY, BUFFER_OUTPUT, 0, exchange->places[rank], exchange->sources[rank].offset,
                  schedule);
    for (int distance = first; distance < size && distance < first + window; distance++) {
        int to = pattern_shift(rank, distance, size), from = pattern_shift(rank, -distance, size);
        plan_step(STEP_SEND, BUFFER_INPUT, to, exchange->sources[to], 0, schedule);
        plan_step(STEP_RECEIVE, BUFFER_OUTPUT, from, exchange->places[from], 0, schedule);
    }
}

static int count_windows(const struct collective *collective, int window)
{
    return collective->size > 1 ? (collective->size - 2) / window + 1 : 1;
}

/* Plans all windows of the lengths if they are not known, then all windows of the blocks; one window is one
 * phase. */
static hvd_code plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status)
{
    int windows = collective->rows ? 0 : count_windows(collective, WINDOW), of_blocks = phase - windows;
    if (phase == 0)
        TRY(begin(collective, status));
    if (of_blocks == 0)
        TRY(blocks_begin(collective, status));
    else if (phase == 0)
        lengths_begin(collective);
    const struct exchange *exchange = collective->scratch;
    int window = of_blocks < 0 ? WINDOW : exchange->window;
    *more = of_blocks < 0 || of_blocks + 1 < count_windows(collective, window);
    plan_window(collective, 1 + (of_blocks < 0 ? phase : of_blocks) * window, window, schedule);
    return HVD_OK;
}

const struct algorithm alltoall_pairwise = {.name = "pairwise", .operation = HVD_ALLTOALL, .plan = plan};
