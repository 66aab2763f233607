/* types.c - the tables of element types, reductions and operations, from their .def files. Constant tables
 * only; any thread. */
#include "base/types.h"

#include "base/status.h"

#include <math.h>
#include <stdio.h>

/* ---- names ------------------------------------------------------------------------------------------- */

const struct dtype dtype_table[] = {
#define DTYPE(name, text, storage, compute, family, ...)                                                     \
    [HVD_##name] = {text, sizeof(storage), FAMILY_##family},
#include "base/dtypes.def"
#undef DTYPE
};

/* Sets of families. */
enum types {
    TYPES_floats = FAMILY_real | FAMILY_half,
    TYPES_ordered = TYPES_floats | FAMILY_integer | FAMILY_logical,
    TYPES_numbers = TYPES_floats | FAMILY_integer | FAMILY_complex,
    TYPES_every = TYPES_numbers | FAMILY_logical,
};

static const struct reduction {
    const char *name;
    enum types types;
} reductions[] = {
#define REDUCTION(name, text, kernel, types) [HVD_##name] = {text, TYPES_##types},
#include "base/reductions.def"
#undef REDUCTION
};

const struct operation operation_table[] = {
#define OPERATION(name, text, shape, result, argument, reductions, batching, absence)                        \
    [HVD_##name] = {text,                                                                                    \
                    SHAPE_##shape,                                                                           \
                    RESULT_##result,                                                                         \
                    RESULTS_##result,                                                                        \
                    ARGUMENT_##argument,                                                                     \
                    REDUCTIONS_##reductions,                                                                 \
                    BATCHING_##batching,                                                                     \
                    ABSENCE_##absence},
#include "base/operations.def"
#undef OPERATION
};

#define KNOWN(table, number)                                                                                 \
    ((number) >= 0 && (size_t)(number) < sizeof table / sizeof *table && table[number].name)

bool dtype_known(int dtype)
{
    return KNOWN(dtype_table, dtype);
}

bool reduction_known(int reduction)
{
    return KNOWN(reductions, reduction);
}

bool operation_known(int operation)
{
    return KNOWN(operation_table, operation);
}

size_t hvd_dtype_size(hvd_dtype dtype)
{
    return dtype_known((int)dtype) ? dtype_table[dtype].size : 0;
}

const char *hvd_dtype_name(hvd_dtype dtype)
{
    return dtype_known((int)dtype) ? dtype_table[dtype].name : "unknown";
}

const char *reduction_name(hvd_reduction reduction)
{
    return reduction_known((int)reduction) ? reductions[reduction].name : "unknown";
}

const char *hvd_operation_name(hvd_operation operation)
{
    return operation_known((int)operation) ? operation_table[operation].name : "unknown";
}

/* ---- which type has which reduction --------------------------------------------------------------- */

bool reduction_takes(hvd_reduction reduction, hvd_dtype dtype)
{
    return reduction_known((int)reduction) && (reductions[reduction].types & dtype_table[dtype].family) != 0;
}

/* "sum, min", the reductions that this operation does of this type. */
static const char *reductions_of(hvd_operation operation, hvd_dtype dtype, char *text, size_t capacity)
{
    *text = '\0';
    for (int i = 0; reduction_known(i); i++) {
        if (operation_does(operation, (hvd_reduction)i) && reduction_takes((hvd_reduction)i, dtype))
            append_text(text, capacity, "%s%s", *text ? ", " : "", reductions[i].name);
    }
    return text;
}

static hvd_code check_factors(hvd_operation operation, hvd_dtype dtype, const double factors[2],
                              hvd_status *status)
{
    enum family family = dtype_table[dtype].family;
    if (family == FAMILY_logical && (factors[0] != 1 || factors[1] != 1))
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: a tensor of %s can't be multiplied by a factor; leave the factors before and "
                          "after the reduction at 1",
                          hvd_operation_name(operation), hvd_dtype_name(dtype));
    if (family == FAMILY_integer && !(isfinite(factors[0]) && isfinite(factors[1])))
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: a tensor of %s can't be multiplied by %g before and %g after the reduction; "
                          "use finite factors, or convert it to floats first",
                          hvd_operation_name(operation), hvd_dtype_name(dtype), factors[0], factors[1]);
    return HVD_OK;
}

hvd_code types_check_reduction(hvd_operation operation, hvd_dtype dtype, hvd_reduction reduction,
                               const double factors[2], hvd_status *status)
{
    char text[128];
    if (!operation_does(operation, reduction))
        return status_set(status, HVD_INVALID_ARGUMENT, "%s: the reduction is %s; it may be %s",
                          hvd_operation_name(operation), reduction_name(reduction),
                          reductions_of(operation, dtype, text, sizeof text));
    if (!reduction_takes(reduction, dtype))
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "%s: there is no %s of %s; what it has: %s. Convert the tensor to another type first",
            hvd_operation_name(operation), reduction_name(reduction), hvd_dtype_name(dtype),
            reductions_of(operation, dtype, text, sizeof text));
    return check_factors(operation, dtype, factors, status);
}

/* ---- shapes ------------------------------------------------------------------------------------------ */

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
