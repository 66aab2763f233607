/* values.h - numbers of every element type, what ranks put into their tensors, and operations on those. */
#ifndef HVD_TEST_VALUES_H
#define HVD_TEST_VALUES_H

#include "group.h"
#include "numbers.h"

#include <stdio.h>
#include <stdlib.h>

static inline void put_at(hvd_dtype dtype, void *data, size_t i, double value)
{
    number_put(dtype, (char *)data + i * hvd_dtype_size(dtype), value);
}

/* What rank `rank` puts at element i: 1 or 2 for products, 0 ... 10 else, another on each of 8 ranks (sums
 * stay below 127); of bool 0 and 1. */
static inline double value_at(hvd_dtype dtype, hvd_reduction reduction, int rank, size_t i)
{
    if (dtype == HVD_BOOL)
        return (i * 7 + (size_t)rank * 3) % 4 > 1;
    if (reduction == HVD_PRODUCT)
        return (i + (size_t)rank) % 3 ? 1 : 2;
    return (double)((i * 7 + (size_t)rank * 3) % 11);
}

/* The result, divided for averages. */
static inline double expected_at(hvd_dtype dtype, hvd_reduction reduction, int size, size_t i)
{
    double result = value_at(dtype, reduction, 0, i);
    for (int rank = 1; rank < size; rank++) {
        double value = value_at(dtype, reduction, rank, i);
        if (reduction == HVD_SUM || reduction == HVD_AVERAGE)
            result = dtype == HVD_BOOL ? result || value : result + value;
        else if (reduction == HVD_PRODUCT)
            result *= value;
        else if ((reduction == HVD_MIN) == (value < result))
            result = value;
    }
    if (reduction != HVD_AVERAGE)
        return result;
    return is_integer(dtype) ? (double)((int)result / size) : result / size;
}

static inline void check_value(hvd_dtype dtype, const void *data, size_t i, double expected, const char *name)
{
    double value = number_get(dtype, (const char *)data + i * hvd_dtype_size(dtype));
    double tolerance = fmax(1.25 * number_step(dtype), 1e-6);
    double error = value > expected ? value - expected : expected - value;
    CHECK(error <= tolerance * (expected > 1 ? expected : 1), "%s: element %zu is %g, not %g", name, i, value,
          expected);
}

/* ---- operations ---------------------------------------------------------------------------------------- */

/* One operation, the same on all ranks: allreduce, allgather, broadcast or reducescatter. */
struct trial {
    hvd_operation operation;
    hvd_dtype type;
    hvd_reduction reduction;
    int64_t rows, width; /* allgather: rank r brings r rows more */
    int root;
    bool given; /* the output of an allgather or reducescatter is the caller's */
    /* Where the output is the caller's: the same memory as the input; its part that is this rank's rows. */
    bool in_place;
    char name[96];
};

struct running {
    hvd_handle *handle;
    char *input, *output;
    void *memory[2];
};

static inline bool has_output(const struct trial *trial)
{
    return !operation_makes_results(trial->operation) || trial->given;
}

static inline int64_t rows_given(const struct trial *trial, int rank)
{
    return trial->rows + (trial->operation == HVD_ALLGATHER ? rank : 0);
}

static inline int64_t rows_got(const struct trial *trial, int rank, int size)
{
    if (trial->operation == HVD_REDUCESCATTER)
        return trial->rows / size + (rank < trial->rows % size);
    return trial->operation == HVD_ALLGATHER ? size * trial->rows + size * (size - 1) / 2 : trial->rows;
}

/* Elements of lower ranks, in an allgather's output or a reducescatter's input. */
static inline size_t elements_before(const struct trial *trial, int rank, int size)
{
    int64_t rows = 0;
    for (int r = 0; r < rank; r++)
        rows += trial->operation == HVD_ALLGATHER ? rows_given(trial, r) : rows_got(trial, r, size);
    return (size_t)(rows * trial->width);
}

static inline bool is_within(const struct trial *trial)
{
#ifdef HVD_ON_DEVICE
    return false; /* where each tensor has memory of its own */
#endif
    return trial->given && trial->in_place;
}

static inline void trial_start(struct member *member, const struct trial *trial, struct running *running)
{
    int64_t shape[] = {rows_given(trial, member->rank), trial->width};
    int64_t result_shape[] = {rows_got(trial, member->rank, member->size), trial->width};
    size_t elements = (size_t)(shape[0] * shape[1]), width = hvd_dtype_size(trial->type);
    running->input = running->memory[0] = malloc(elements * width + 1);
    running->output = running->memory[1] = malloc((size_t)(result_shape[0] * result_shape[1]) * width + 1);
    size_t before = elements_before(trial, member->rank, member->size) * width;
    if (is_within(trial) && trial->operation == HVD_ALLGATHER)
        running->input = running->output + before;
    else if (is_within(trial))
        running->output = running->input + before;
    for (size_t i = 0; i < elements; i++)
        put_at(trial->type, running->input, i, value_at(trial->type, trial->reduction, member->rank, i));
    hvd_tensor in = tensor_of(running->input, trial->type, shape, 2);
    hvd_tensor out = tensor_of(running->output, trial->type, result_shape, 2);
    hvd_request request = request_of(trial->operation, trial->name, &in);
    request.reduction = trial->reduction;
    request.root = trial->root;
    request.outputs = has_output(trial) && (trial->given || !trial->in_place) ? &out : NULL;
    CHECK_OK(hvd_submit(member->context, &request, &running->handle, &check_status));
}

/* The element at row-major place i of what this rank should have got. */
static inline double trial_expected(const struct member *member, const struct trial *trial, size_t i)
{
    size_t width = (size_t)trial->width;
    int rank = 0;
    if (trial->operation == HVD_BROADCAST)
        return value_at(trial->type, trial->reduction, trial->root, i);
    if (trial->operation == HVD_ALLGATHER) {
        for (; i >= (size_t)rows_given(trial, rank) * width; rank++)
            i -= (size_t)rows_given(trial, rank) * width;
        return value_at(trial->type, trial->reduction, rank, i);
    }
    for (; rank < member->rank && trial->operation == HVD_REDUCESCATTER; rank++)
        i += (size_t)rows_got(trial, rank, member->size) * width;
    return expected_at(trial->type, trial->reduction, member->size, i);
}

/* Waits, and checks the result, and that an input that is no output is what it was. */
static inline void trial_finish(struct member *member, const struct trial *trial, struct running *running)
{
    bool in_place = has_output(trial) && trial->in_place;
    hvd_tensor result = {.data = in_place && !trial->given ? running->input : running->output};
    size_t given = (size_t)(rows_given(trial, member->rank) * trial->width);
    size_t got = (size_t)(rows_got(trial, member->rank, member->size) * trial->width);
    CHECK_OK(hvd_wait(running->handle, 60, &check_status));
    if (!has_output(trial)) {
        CHECK_OK(hvd_output(running->handle, 0, &result, &check_status));
        CHECK(result.ndim == 2 && result.shape[0] == rows_got(trial, member->rank, member->size) &&
                  result.shape[1] == trial->width,
              "%s: shape [%d, %d]", trial->name, (int)result.shape[0], (int)result.shape[1]);
    }
    for (size_t i = 0; i < got; i++)
        check_value(trial->type, result.data, i, trial_expected(member, trial, i), trial->name);
    for (size_t i = 0; i < given && !in_place; i++)
        check_value(trial->type, running->input, i, value_at(trial->type, trial->reduction, member->rank, i),
                    trial->name);
    hvd_release(running->handle);
    free(running->memory[0]);
    free(running->memory[1]);
}

static inline void trial_run(struct member *member, struct trial trial)
{
    struct running running;
    snprintf(trial.name, sizeof trial.name, "%s %s %s [%d, %d] of %d%s%s over %s",
             hvd_operation_name(trial.operation), reduction_name(trial.reduction), hvd_dtype_name(trial.type),
             (int)trial.rows, (int)trial.width, trial.root, trial.given ? " given" : "",
             trial.in_place ? " in place" : "", member->transport);
    trial_start(member, &trial, &running);
    trial_finish(member, &trial, &running);
}

#endif
