/* algorithms.c - the table of all algorithms and the choice among them; see job.h. Constant; any thread. */
#include "base/status.h"
#include "base/types.h"
#include "coll/job.h"

#include <stdio.h>
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

uint16_t algorithm_choose(hvd_operation operation, hvd_reduction reduction, uint64_t bytes, int size,
                          const char *forced, uint64_t latency_threshold)
{
    int choice = -1;
    for (int i = 0; i < algorithm_count; i++) {
        const struct algorithm *row = algorithm_table[i];
        if (!algorithm_does(i, operation, reduction))
            continue;
        if (strcmp(row->name, forced) == 0)
            return (uint16_t)i;
        if (choice < 0 && row->fits(bytes, size, latency_threshold))
            choice = i;
    }
    return choice < 0 ? 0 : (uint16_t)choice;
}

uint16_t method_of(uint16_t row, uint64_t piece_bytes)
{
    unsigned exponent = PIECE_EXPONENT_LEAST;
    while (exponent < PIECE_EXPONENT_MOST && (uint64_t)1 << exponent < piece_bytes)
        exponent++;
    return (uint16_t)(row | exponent << 8);
}

/* Adasum has one algorithm: there is nothing to choose. */
hvd_code algorithm_check_name(hvd_operation operation, const char *name, hvd_status *status)
{
    char names[256] = "auto";
    size_t used = strlen(names);
    if (strcmp(name, "auto") == 0)
        return HVD_OK;
    for (int i = 0; i < algorithm_count; i++) {
        const struct algorithm *row = algorithm_table[i];
        if (!algorithm_does(i, operation, HVD_SUM))
            continue;
        if (strcmp(row->name, name) == 0)
            return HVD_OK;
        if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, ", %s", row->name);
    }
    return status_set(status, HVD_INVALID_ARGUMENT, "%s has no algorithm '%s'; use one of: %s",
                      operation_name(operation), name, names);
}
