/* types.c - see types.h. Constant tables only; any thread. */
#include "base/types.h"

#include <stdio.h>

size_t hvd_dtype_size(hvd_dtype dtype)
{
    switch (dtype) {
#define DTYPE(name, text, storage, compute, family)                                                          \
    case HVD_##name:                                                                                         \
        return sizeof(storage);
#include "base/dtypes.def"
#undef DTYPE
    }
    return 0;
}

const char *hvd_dtype_name(hvd_dtype dtype)
{
    switch (dtype) {
#define DTYPE(name, text, storage, compute, family)                                                          \
    case HVD_##name:                                                                                         \
        return text;
#include "base/dtypes.def"
#undef DTYPE
    }
    return "unknown";
}

bool dtype_known(int dtype)
{
    return hvd_dtype_size((hvd_dtype)dtype) != 0;
}

const char *reduction_name(hvd_reduction reduction)
{
    switch (reduction) {
#define REDUCTION(name, text, kernel)                                                                        \
    case HVD_##name:                                                                                         \
        return text;
#include "base/reductions.def"
#undef REDUCTION
    }
    return "unknown";
}

bool reduction_known(int reduction)
{
    switch (reduction) {
#define REDUCTION(name, text, kernel) case HVD_##name:
#include "base/reductions.def"
#undef REDUCTION
        return true;
    }
    return false;
}

const char *operation_name(hvd_operation operation)
{
    switch (operation) {
#define OPERATION(name, text, ...)                                                                           \
    case HVD_##name:                                                                                         \
        return text;
#include "base/operations.def"
#undef OPERATION
    }
    return "unknown";
}

bool operation_known(int operation)
{
    switch (operation) {
#define OPERATION(name, text, ...) case HVD_##name:
#include "base/operations.def"
#undef OPERATION
        return true;
    }
    return false;
}

enum reductions { REDUCTIONS_none, REDUCTIONS_sums, REDUCTIONS_every };
enum results { RESULTS_callers, RESULTS_engines };

static const struct traits {
    enum reductions reductions;
    enum results results;
} traits[] = {
#define OPERATION(name, text, shape, reductions, results, ...)                                               \
    [HVD_##name] = {REDUCTIONS_##reductions, RESULTS_##results},
#include "base/operations.def"
#undef OPERATION
};

bool operation_does(hvd_operation operation, hvd_reduction reduction)
{
    enum reductions done = traits[operation].reductions;
    bool sum = reduction == HVD_SUM || reduction == HVD_AVERAGE;
    return done == REDUCTIONS_every || (done == REDUCTIONS_sums && sum);
}

bool operation_reduces(hvd_operation operation)
{
    return traits[operation].reductions != REDUCTIONS_none;
}

bool operation_makes_results(hvd_operation operation)
{
    return traits[operation].results == RESULTS_engines;
}

int64_t shape_elements(const int64_t *shape, int ndim, size_t element_size)
{
    int64_t elements = 1;
    int64_t bytes;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0 || __builtin_mul_overflow(elements, shape[i], &elements))
            return -1;
    }
    if (__builtin_mul_overflow(elements, (int64_t)element_size, &bytes))
        return -1;
    return elements;
}

const char *shape_text(const int64_t *shape, int ndim, char *text, size_t capacity)
{
    size_t used = (size_t)snprintf(text, capacity, "[");
    for (int i = 0; i < ndim && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (used + 1 < capacity)
        snprintf(text + used, capacity - used, "]");
    else if (capacity > 4)
        snprintf(text + capacity - 5, 5, "...]");
    return text;
}
