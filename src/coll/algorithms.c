/* algorithms.c - the table of all algorithms, the choice among them, and the functions of schedules and
 * vectors that they share. The table is constant; a schedule belongs to one thread at a time. */
#include "base/pool.h"
#include "base/status.h"
#include "base/types.h"
#include "coll/collective.h"

#include <string.h>

#define ALGORITHM(name) extern const struct algorithm name;
#include "coll/algorithms.def"
#undef ALGORITHM

#define ALGORITHM(name) &name,
const struct algorithm *const algorithm_table[] = {
#include "coll/algorithms.def"
};
#undef ALGORITHM

const int algorithm_count = sizeof algorithm_table / sizeof *algorithm_table;

bool algorithm_does(int index, hvd_operation operation, hvd_reduction reduction)
{
    if (index < 0 || index >= algorithm_count || algorithm_table[index]->operation != operation)
        return false;
    return operation != HVD_ALLREDUCE || algorithm_table[index]->adasum == (reduction == HVD_ADASUM);
}

/* In deterministic mode a row must add in the order of ranks. Adasum has its own order, and one algorithm. */
static bool can_run(const struct algorithm *row, int size, const struct settings *settings)
{
    return !settings->deterministic || row->operation != HVD_ALLREDUCE || row->adasum ||
           size <= row->ordered_ranks;
}

int algorithm_choose(hvd_operation operation, hvd_reduction reduction, uint64_t bytes,
                     const struct topology *topology, uint64_t latency_threshold,
                     const struct settings *settings)
{
    const char *forced = settings->allreduce_algorithm;
    bool by_name = operation == HVD_ALLREDUCE && strcmp(forced, "auto") != 0;
    bool by_hosts =
        operation_reduces(operation) ? settings->hierarchical_allreduce : settings->hierarchical_allgather;
    int choice = -1;
    for (int i = 0; i < algorithm_count && (choice < 0 || by_name); i++) {
        const struct algorithm *row = algorithm_table[i];
        if (!algorithm_does(i, operation, reduction) || !can_run(row, topology->size, settings))
            continue;
        if (by_name && strcmp(row->name, forced) == 0)
            return i;
        if (row->by_hosts && !by_hosts)
            continue;
        if (choice < 0 && (!row->fits || row->fits(bytes, topology, latency_threshold)))
            choice = i;
    }
    return choice < 0 ? 0 : choice;
}

void algorithm_describe(const struct topology *topology, const struct settings *settings, char *text,
                        size_t capacity)
{
    *text = '\0';
    for (int row = 0; row < algorithm_count; row++) {
        const struct algorithm *algorithm = algorithm_table[row], *chosen = NULL;
        hvd_operation operation = algorithm->operation;
        hvd_reduction reduction = algorithm->adasum ? HVD_ADASUM : HVD_SUM;
        if (row && algorithm_does(row - 1, operation, reduction))
            continue; /* the first row of the operation has written the line */
        append_text(text, capacity, "%s%s%s:", row ? "; " : "", hvd_operation_name(operation),
                    algorithm->adasum ? " (Adasum)" : "");
        for (uint64_t bytes = 1; bytes <= (uint64_t)1 << PIECE_EXPONENT_MOST; bytes *= 2) {
            const struct algorithm *next = algorithm_table[algorithm_choose(
                operation, reduction, bytes, topology, (uint64_t)settings->latency_threshold, settings)];
            if (chosen && next != chosen)
                append_text(text, capacity, ", of %llu bytes", (unsigned long long)bytes);
            if (next != chosen)
                append_text(text, capacity, " %s", next->name);
            chosen = next;
        }
    }
}

/* Plans a reduction in a set of one rank: its result is the scaled input; a true bool becomes 1. */
static void plan_alone(const struct collective *collective, struct schedule *schedule)
{
    bool scales = collective->prescale != 1 || collective->postscale != 1;
    bool logical = dtype_table[collective->dtype].family == FAMILY_logical;
    if (scales || logical || !vector_same(&collective->input, &collective->output))
        schedule_add(schedule,
                     (struct step){.kind = STEP_COPY,
                                   .gate = STEP_NO_GATE,
                                   .last = true,
                                   .length = collective->output.length / hvd_dtype_size(collective->dtype)});
}

hvd_code algorithm_plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                        hvd_status *status)
{
    *more = false;
    if (collective->size > 1 || !operation_reduces(collective->operation))
        return collective->algorithm->plan(collective, phase, schedule, more, status);
    plan_alone(collective, schedule);
    return HVD_OK;
}

unsigned piece_exponent_of(uint64_t piece_bytes)
{
    unsigned exponent = PIECE_EXPONENT_LEAST;
    while (exponent < PIECE_EXPONENT_MOST && (uint64_t)1 << exponent < piece_bytes)
        exponent++;
    return exponent;
}

hvd_code algorithm_check_settings(const struct settings *settings, hvd_status *status)
{
    const char *name = settings->allreduce_algorithm;
    int size = (int)settings->size;
    char names[256] = "auto";
    if (strcmp(name, "auto") == 0)
        return HVD_OK;
    for (int i = 0; i < algorithm_count; i++) {
        const struct algorithm *row = algorithm_table[i];
        if (!algorithm_does(i, HVD_ALLREDUCE, HVD_SUM) || !can_run(row, size, settings))
            continue;
        if (strcmp(row->name, name) == 0)
            return HVD_OK;
        append_text(names, sizeof names, ", %s", row->name);
    }
    return status_set(
        status, HVD_INVALID_ARGUMENT,
        "HOROVOD_ALLREDUCE_ALGORITHM=%s: allreduce on %d ranks has no such algorithm%s; use one of: %s", name,
        size,
        settings->deterministic ? " that adds in the order of ranks, as HOROVOD_DETERMINISTIC asks" : "",
        names);
}

/* ---- schedule -------------------------------------------------------------------------------------- */

bool step_is_local(const struct step *step)
{
    return step->kind == STEP_COPY || step->kind == STEP_COMPUTE;
}

void schedule_clear(struct schedule *schedule)
{
    schedule->count = 0;
    schedule->failed = false;
}

void schedule_free(struct schedule *schedule)
{
    pages_free(schedule->steps, (size_t)schedule->capacity * sizeof *schedule->steps);
    *schedule = (struct schedule){0};
}

static bool grow(struct schedule *schedule)
{
    int capacity = schedule->capacity ? schedule->capacity * 2 : 16;
    struct step *steps = pages_resize(schedule->steps, (size_t)schedule->capacity * sizeof *steps,
                                      (size_t)capacity * sizeof *steps);
    if (!steps)
        return false;
    schedule->steps = steps;
    schedule->capacity = capacity;
    return true;
}

int schedule_add(struct schedule *schedule, struct step step)
{
    if (schedule->count == schedule->capacity && !grow(schedule))
        schedule->failed = true;
    if (schedule->failed)
        return STEP_NO_GATE;
    schedule->steps[schedule->count] = step;
    return schedule->count++;
}

/* ---- vector ---------------------------------------------------------------------------------------- */

void vector_measure(struct vector *vector)
{
    vector->length = 0;
    for (int i = 0; i < vector->count; i++) {
        vector->starts[i] = vector->length;
        vector->length += vector->spans[i].length;
    }
}

bool vector_same(const struct vector *a, const struct vector *b)
{
    if (a->count != b->count || a->spans == b->spans)
        return a->count == b->count;
    for (int i = 0; i < a->count; i++)
        if (a->spans[i].data != b->spans[i].data || a->spans[i].length != b->spans[i].length)
            return false;
    return true;
}

/* Returns the last span that starts at or before the offset. An empty span is never the answer: it is
 * followed by one with the same start, or is at the end. */
int vector_find(const struct vector *vector, size_t offset)
{
    int low = 0, high = vector->count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (vector->starts[middle] <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int vector_parts(const struct vector *vector, size_t offset, size_t length, struct iovec *parts, int limit)
{
    if (!length)
        return 0;
    int count = 0;
    int span = vector_find(vector, offset);
    size_t skip = offset - vector->starts[span];
    for (; length && count < limit; span++, skip = 0) {
        size_t here = vector->spans[span].length - skip;
        if (!here)
            continue;
        here = here < length ? here : length;
        parts[count++] = (struct iovec){vector->spans[span].data + skip, here};
        length -= here;
    }
    return count;
}
