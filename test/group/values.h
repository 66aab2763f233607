/* values.h - numbers of every element type, what ranks put into their tensors, and operations on those. */
#ifndef HVD_TEST_VALUES_H
#define HVD_TEST_VALUES_H

#include "group.h"
#include "numbers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void put_at(hvd_dtype dtype, void *data, size_t i, double value)
{
    number_put(dtype, (char *)data + i * hvd_dtype_size(dtype), value);
}

/* value_at repeats after this many elements, a multiple of 11, 4 and 3. */
#define PERIOD 132

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

/* Fills `bytes` with copies of the first `period` of them. Sanitizers make loops over elements slow, and look
 * at a block once. */
static inline void repeat(void *data, size_t period, size_t bytes)
{
    for (size_t done = period, part; done < bytes; done += part) {
        part = done < bytes - done ? done : bytes - done;
        memcpy((char *)data + done, data, part);
    }
}

/* Returns true if `bytes` are copies of the first `period` of them. */
static inline bool repeats(const void *data, size_t period, size_t bytes)
{
    return bytes <= period || memcmp((const char *)data + period, data, bytes - period) == 0;
}

static inline void put_values(hvd_dtype dtype, hvd_reduction reduction, int rank, void *data, size_t count)
{
    for (size_t i = 0; i < count && i < PERIOD; i++)
        put_at(dtype, data, i, value_at(dtype, reduction, rank, i));
    repeat(data, PERIOD * hvd_dtype_size(dtype), count * hvd_dtype_size(dtype));
}

/* Checks `count` elements from `first` on, of which `expected` has one period. Elements that have the same
 * bits as those a period before them are as right. */
static inline void check_values(hvd_dtype dtype, const void *data, size_t first, size_t count,
                                const double *expected, const char *name)
{
    size_t width = hvd_dtype_size(dtype);
    const char *start = (const char *)data + first * width;
    bool is_periodic = count > PERIOD && repeats(start, PERIOD * width, count * width);
    for (size_t i = 0; i < (is_periodic ? PERIOD : count); i++)
        check_value(dtype, data, first + i, expected[i % PERIOD], name);
}

/* Checks elements from `first` on, which are those that rank `rank` has put. */
static inline void check_values_of(hvd_dtype dtype, hvd_reduction reduction, int rank, const void *data,
                                   size_t first, size_t count, const char *name)
{
    double expected[PERIOD];
    for (size_t i = 0; i < PERIOD; i++)
        expected[i] = value_at(dtype, reduction, rank, i);
    check_values(dtype, data, first, count, expected, name);
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
    put_values(trial->type, trial->reduction, member->rank, running->input, elements);
    hvd_tensor in = tensor_of(running->input, trial->type, shape, 2);
    hvd_tensor out = tensor_of(running->output, trial->type, result_shape, 2);
    hvd_request request = request_of(trial->operation, trial->name, &in);
    request.reduction = trial->reduction;
    request.root = trial->root;
    request.outputs = has_output(trial) && (trial->given || !trial->in_place) ? &out : NULL;
    CHECK_OK(hvd_submit(member->context, &request, &running->handle, &check_status));
}

/* Checks what this rank has got. */
static inline void trial_check(const struct member *member, const struct trial *trial, const void *result)
{
    hvd_dtype type = trial->type;
    size_t width = (size_t)trial->width, first = 0;
    size_t got = (size_t)rows_got(trial, member->rank, member->size) * width;
    if (trial->operation == HVD_BROADCAST)
        check_values_of(type, trial->reduction, trial->root, result, 0, got, trial->name);
    for (int rank = 0; rank < member->size && trial->operation == HVD_ALLGATHER; rank++) {
        size_t count = (size_t)rows_given(trial, rank) * width;
        check_values_of(type, trial->reduction, rank, result, first, count, trial->name);
        first += count;
    }
    if (trial->operation == HVD_BROADCAST || trial->operation == HVD_ALLGATHER)
        return;
    if (trial->operation == HVD_REDUCESCATTER)
        first = elements_before(trial, member->rank, member->size);
    double expected[PERIOD];
    for (size_t i = 0; i < PERIOD; i++)
        expected[i] = expected_at(type, trial->reduction, member->size, first + i);
    check_values(type, result, 0, got, expected, trial->name);
}

/* Waits, and checks the result, and that an input that is no output is what it was. */
static inline void trial_finish(struct member *member, const struct trial *trial, struct running *running)
{
    bool in_place = has_output(trial) && trial->in_place;
    hvd_tensor result = {.data = in_place && !trial->given ? running->input : running->output};
    size_t given = (size_t)(rows_given(trial, member->rank) * trial->width);
    CHECK_OK(hvd_wait(running->handle, 60, &check_status));
    if (!has_output(trial)) {
        CHECK_OK(hvd_output(running->handle, 0, &result, &check_status));
        CHECK(result.ndim == 2 && result.shape[0] == rows_got(trial, member->rank, member->size) &&
                  result.shape[1] == trial->width,
              "%s: shape [%d, %d]", trial->name, (int)result.shape[0], (int)result.shape[1]);
    }
    trial_check(member, trial, result.data);
    if (!in_place)
        check_values_of(trial->type, trial->reduction, member->rank, running->input, 0, given, trial->name);
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
