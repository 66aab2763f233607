/* algorithms.c - the table of all algorithms and the choice among them; see collective.h. Constant; any
 * thread. */
#include "base/status.h"
#include "base/types.h"
#include "coll/allreduce.h"

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

/* Adasum has an order of its own, and one algorithm. */
static bool is_ordered(const struct algorithm *row, int size)
{
    return row->operation != HVD_ALLREDUCE || row->adasum || size <= row->ordered_ranks;
}

static bool can_run(const struct algorithm *row, int size, const struct settings *settings)
{
    return !settings->deterministic || is_ordered(row, size);
}

int algorithm_choose(hvd_operation operation, hvd_reduction reduction, uint64_t bytes,
                     const struct topology *topology, uint64_t latency_threshold,
                     const struct settings *settings)
{
    int choice = -1;
    for (int i = 0; i < algorithm_count; i++) {
        const struct algorithm *row = algorithm_table[i];
        if (!algorithm_does(i, operation, reduction) || !can_run(row, topology->size, settings))
            continue;
        if (strcmp(row->name, settings->allreduce_algorithm) == 0)
            return i;
        if (choice < 0 && (!row->fits || row->fits(bytes, topology, latency_threshold)))
            choice = i;
    }
    return choice < 0 ? 0 : choice;
}

/* In a set of one rank the result of a reduction is the scaled input. */
static void plan_alone(const struct collective *collective, struct schedule *schedule)
{
    bool scales = collective->prescale != 1 || collective->postscale != 1;
    if (scales || !vector_same(&collective->input, &collective->output))
        copy_add((struct range){0, collective->output.length}, true, schedule);
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
