/* types.h - names and sizes of element types, reductions and operations, expanded from the .def lists.
 * Constant tables; any thread. */
#ifndef HVD_BASE_TYPES_H
#define HVD_BASE_TYPES_H

#include "horovod.h"

#include <stdbool.h>
#include <stdint.h>

/* Families of element types: what can be done with them, and by which kernels. */
enum family {
    FAMILY_logical = 1,
    FAMILY_integer = 2,
    FAMILY_real = 4,
    FAMILY_half = 8,
    FAMILY_complex = 16,
};

struct dtype {
    const char *name; /* NULL: there is no type of this number */
    size_t size;
    enum family family;
};

/* By hvd_dtype; only numbers for which dtype_known is true. */
extern const struct dtype dtype_table[];

bool dtype_known(int dtype);
bool reduction_known(int reduction);
bool operation_known(int operation);
const char *reduction_name(hvd_reduction reduction); /* "sum" */

/* A row of operations.def, where the words are explained. */
enum shape_rule { SHAPE_same_shape, SHAPE_divided, SHAPE_same_rows, SHAPE_no_tensors };
enum result { RESULT_nothing, RESULT_same, RESULT_joined, RESULT_part, RESULT_exchanged };
enum argument { ARGUMENT_nothing, ARGUMENT_root, ARGUMENT_splits, ARGUMENT_members, ARGUMENT_set };
enum batching { BATCHING_fuse, BATCHING_alone };
enum absence { ABSENCE_always, ABSENCE_join_all, ABSENCE_never };

struct operation {
    const char *name;
    enum shape_rule shape;
    enum result result;
    int results; /* number of tensors that the engine allocates for one of the caller */
    enum argument argument;
    uint32_t reductions; /* bits */
    enum batching batching;
    enum absence absence;
};

/* One more than the largest hvd_operation. */
enum {
    OPERATION_NUMBERS = sizeof((char[]){
#define OPERATION(name, ...) [HVD_##name] = 0,
#include "base/operations.def"
#undef OPERATION
    })
};

/* By hvd_operation; only numbers for which operation_known is true. */
extern const struct operation operation_table[];

static inline const char *operation_name(hvd_operation operation)
{
    return operation_table[operation].name;
}

static inline bool operation_does(hvd_operation operation, hvd_reduction reduction)
{
    return operation_table[operation].reductions >> reduction & 1;
}

static inline bool operation_reduces(hvd_operation operation)
{
    return operation_table[operation].reductions != 0;
}

static inline bool operation_makes_results(hvd_operation operation)
{
    return operation_table[operation].results > 0;
}

static inline bool operation_takes(hvd_operation operation, enum argument argument)
{
    return operation_table[operation].argument == argument;
}

static inline bool operation_changes_sets(hvd_operation operation)
{
    return operation_takes(operation, ARGUMENT_members) || operation_takes(operation, ARGUMENT_set);
}

/* Returns true if the reduction is defined for this type, as reductions.def says. */
bool reduction_takes(hvd_reduction reduction, hvd_dtype dtype);

/* HVD_INVALID_ARGUMENT if the operation cannot reduce the type in this way, or the type cannot be multiplied
 * by the factors before and after; the text says what is possible. Type and reduction must be known. */
hvd_code types_check_reduction(hvd_operation operation, hvd_dtype dtype, hvd_reduction reduction,
                               const double factors[2], hvd_status *status);

/* Product of the extents, or -1 when one is negative or the product of bytes overflows. */
int64_t shape_elements(const int64_t *shape, int ndim, size_t element_size);
/* The bytes of a tensor of a known type for which shape_elements does not return -1. */
static inline size_t tensor_bytes(const hvd_tensor *tensor)
{
    size_t bytes = dtype_table[tensor->dtype].size;
    for (int i = 0; i < tensor->ndim; i++)
        bytes *= (size_t)tensor->shape[i];
    return bytes;
}

/* "[2, 3]", "[]"; cut with "..." when it does not fit. */
const char *shape_text(const int64_t *shape, int ndim, char *text, size_t capacity);

/* ---- choice ----------------------------------------------------------------------------------------------
 * How a batch moves: chosen by the root of its process set, carried in the decision. A coordinator
 * passes it on unread; the ranges are checked where it is used (backend/backend.h). */

struct choice {
    uint8_t backend;        /* the row */
    uint8_t algorithm;      /* a number of that back end's own */
    uint8_t piece_exponent; /* the algorithm cuts the vector into pieces of 2^piece_exponent bytes, if it cuts
                               it */
};

#endif
