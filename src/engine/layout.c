/* layout.c - see batch.h. */
#include "engine/batch.h"

#include "base/pool.h"
#include "base/status.h"
#include "base/types.h"
#include "coll/pattern.h"

#include <stdlib.h>
#include <string.h>

/* ---- sizes ---------------------------------------------------------------------------------------- */

/* Of a tensor with a first dimension, as all operations that count rows demand (operations.def). */
static uint64_t row_bytes_of(const hvd_tensor *tensor)
{
    return (uint64_t)shape_elements(tensor->shape + 1, tensor->ndim - 1, 1) * hvd_dtype_size(tensor->dtype);
}

/* How long the lists of a batch may become. */
struct lengths {
    size_t handles, tensors, rows, row_bytes, inputs, outputs, blocks, events;
};

static struct lengths measure(struct hvd_handle *const *handles, int count, int size)
{
    const struct operation *operation = &operation_table[handles[0]->request.operation];
    struct lengths lengths = {.handles = (size_t)count};
    bool apart = operation->results > 0;
    for (int i = 0; i < count; i++) {
        lengths.tensors += (size_t)handles[i]->request.count;
        /* One that is not in place suffices: then the output is a list of its own, which repeats the inputs
         * of the others. */
        apart |= handles[i]->request.outputs != NULL;
    }
    lengths.inputs = lengths.tensors;
    lengths.outputs = apart ? lengths.tensors : 0;
    if (operation->result == RESULT_joined || operation->result == RESULT_exchanged) {
        lengths.rows = operation->result == RESULT_exchanged ? (size_t)size : lengths.tensors;
        lengths.row_bytes = lengths.tensors;
    }
    if (operation->result == RESULT_part) {
        lengths.inputs = lengths.tensors * (size_t)size;
        /* The results, and the room before and behind them: see fill_by_blocks. */
        lengths.outputs = lengths.tensors + 2;
        lengths.blocks = (size_t)size + 1;
    }
    lengths.events = handles[0]->memory->host_access ? 0 : lengths.handles;
    return lengths;
}

struct running_batch *layout_create(struct hvd_handle *const *handles, int count, int size)
{
    struct lengths lengths = measure(handles, count, size);
    size_t bytes = sizeof(struct running_batch) + lengths.handles * sizeof(struct hvd_handle *) +
                   (lengths.inputs + lengths.outputs) * (sizeof(struct span) + sizeof(size_t)) +
                   (lengths.rows + lengths.row_bytes) * sizeof(uint64_t) + lengths.blocks * sizeof(size_t) +
                   lengths.events * sizeof(struct memory_event *);
    struct running_batch *running = pages_take(bytes);
    if (!running)
        return NULL;
    *running = (struct running_batch){.bytes = bytes, .count = count, .in_place = !lengths.outputs};
    /* No element needs more alignment than a pointer does, so the lists may follow one another. */
    running->handles = (struct hvd_handle **)(running + 1);
    running->collective.input.spans = (struct span *)(running->handles + count);
    running->collective.output.spans = running->collective.input.spans + lengths.inputs;
    running->collective.input.starts = (size_t *)(running->collective.output.spans + lengths.outputs);
    running->collective.output.starts = running->collective.input.starts + lengths.inputs;
    running->own_rows = (uint64_t *)(running->collective.output.starts + lengths.outputs);
    running->row_bytes = running->own_rows + lengths.rows;
    running->blocks = (size_t *)(running->row_bytes + lengths.row_bytes);
    running->events = (struct memory_event **)(running->blocks + lengths.blocks);
    memcpy(running->handles, handles, (size_t)count * sizeof *handles);
    return running;
}

void layout_free(struct running_batch *running)
{
    hvd_free(running->room);
    pages_give(running, running->bytes);
}

/* ---- vectors -------------------------------------------------------------------------------------- */

static void vector_add(struct vector *vector, void *data, size_t length)
{
    vector->spans[vector->count] = (struct span){data, length};
    vector->starts[vector->count++] = vector->length;
    vector->length += length;
}

static void add_rows(struct running_batch *running, const hvd_tensor *tensor)
{
    int index = running->collective.tensors++;
    running->own_rows[index] = (uint64_t)tensor->shape[0];
    running->row_bytes[index] = row_bytes_of(tensor);
}

/* Whether a tensor of one of the handles is in this collective. */
static bool includes(const struct running_batch *running, const struct hvd_handle *handle, int tensor)
{
    const struct collective *collective = &running->collective;
    return (!operation_reduces(collective->operation) ||
            handle->request.inputs[tensor].dtype == collective->dtype) &&
           (!handle->parts.of || handle->parts.of[tensor] == running->part);
}

static void fill_plainly(struct running_batch *running)
{
    struct collective *collective = &running->collective;
    for (int i = 0; i < running->count; i++) {
        const hvd_request *request = &running->handles[i]->request;
        for (int t = 0; t < request->count; t++) {
            const hvd_tensor *input = &request->inputs[t];
            const hvd_tensor *output = request->outputs ? &request->outputs[t] : input;
            if (!includes(running, running->handles[i], t))
                continue;
            vector_add(&collective->input, input->data, tensor_bytes(input));
            /* Its output follows when the rows of all ranks are known: layout_gathered. */
            if (operation_table[request->operation].result == RESULT_joined)
                add_rows(running, input);
            else if (!running->in_place)
                vector_add(&collective->output, output->data, tensor_bytes(output));
        }
    }
    if (running->in_place)
        collective->output = collective->input;
}

/* ---- results -------------------------------------------------------------------------------------- */

static hvd_code results_reserve(struct hvd_handle *handle, int count, hvd_status *status)
{
    if (!handle->results) /* no other collective of the request has */
        handle->results = calloc((size_t)count, sizeof *handle->results);
    handle->result_count = handle->results ? count : 0;
    if (!handle->results)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the results of %s", handle->name);
    return HVD_OK;
}

static bool share_memory(const hvd_tensor *a, const hvd_tensor *b)
{
    uintptr_t start_a = (uintptr_t)a->data, start_b = (uintptr_t)b->data;
    return start_a < start_b + tensor_bytes(b) && start_b < start_a + tensor_bytes(a);
}

/* Whether the caller's output can take the result. Else the other ranks, which depend on this one, go on with
 * memory of the engine, and this rank gets the error. */
static bool output_fits(struct hvd_handle *handle, int index, const int64_t *shape, uintptr_t in_place)
{
    const hvd_tensor *output = &handle->request.outputs[index];
    int rank = handle->context->placement.rank;
    char texts[2][128];
    hvd_status failure = {.code = HVD_OK};
    if (output->shape[0] != shape[0])
        status_set(&failure, HVD_MISMATCH,
                   "%s: on rank %d output %d has shape %s, but its result has %s; the job can go on",
                   handle->name, rank, index,
                   shape_text(output->shape, output->ndim, texts[0], sizeof texts[0]),
                   shape_text(shape, output->ndim, texts[1], sizeof texts[1]));
    else if ((uintptr_t)output->data != in_place && share_memory(output, &handle->request.inputs[index]))
        status_set(&failure, HVD_MISMATCH,
                   "%s: on rank %d output %d shares memory with its input, which does not lie where its rows "
                   "go; the job can go on",
                   handle->name, rank, index);
    if (failure.code)
        handle_fail(handle, &failure);
    return !failure.code;
}

/* As the input, but with so many rows; it becomes the next part of the output. `in_place`: where the output
 * starts if this rank's rows of both are the same memory. */
static hvd_code add_result(struct collective *collective, struct hvd_handle *handle, int index, uint64_t rows,
                           uintptr_t in_place, hvd_status *status)
{
    const hvd_tensor *input = &handle->request.inputs[index];
    hvd_tensor *result = &handle->results[index];
    uint64_t bytes = rows * row_bytes_of(input);
    int64_t shape[HVD_MAX_DIMENSIONS];
    for (int d = 1; d < input->ndim; d++)
        shape[d] = input->shape[d];
    shape[0] = (int64_t)rows;
    if (handle->request.outputs && output_fits(handle, index, shape, in_place)) {
        vector_add(&collective->output, handle->request.outputs[index].data, bytes);
        return HVD_OK;
    }
    *result = *input;
    result->data =
        result_allocate(handle->memory, input->device_id, shape, input->ndim, bytes, &result->shape);
    if (!result->data)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for %llu bytes, the result of %s",
                          (unsigned long long)bytes, handle->name);
    vector_add(&collective->output, result->data, bytes);
    return HVD_OK;
}

/* ---- allgather ------------------------------------------------------------------------------------ */

/* The sum of what the first `ranks` ranks have sent: rows[rank * tensors + tensor], see coll/collective.h. */
static uint64_t sum_over_ranks(const struct collective *collective, int ranks, const uint64_t *rows,
                               int tensor)
{
    uint64_t total = 0;
    for (int rank = 0; rank < ranks; rank++)
        total += rows[(size_t)rank * (size_t)collective->tensors + (size_t)tensor];
    return total;
}

static hvd_code add_results_of_all(struct collective *collective, const uint64_t *rows, hvd_status *status)
{
    struct running_batch *running = collective->owner;
    int tensor = 0;
    for (int i = 0; i < running->count; i++) {
        struct hvd_handle *handle = running->handles[i];
        hvd_code code = results_reserve(handle, handle->request.count, status);
        for (int t = 0; !code && t < handle->request.count; t++) {
            const hvd_tensor *input = &handle->request.inputs[t];
            if (!includes(running, handle, t))
                continue;
            uint64_t before = sum_over_ranks(collective, collective->rank, rows, tensor);
            uint64_t all = sum_over_ranks(collective, collective->size, rows, tensor);
            code = add_result(collective, handle, t, all,
                              (uintptr_t)input->data - before * row_bytes_of(input), status);
            tensor++;
        }
        if (code)
            return code;
    }
    return HVD_OK;
}

/* ---- alltoall ------------------------------------------------------------------------------------- */

static void fill_with_splits(struct running_batch *running)
{
    struct collective *collective = &running->collective;
    const hvd_request *request = &running->handles[0]->request;
    vector_add(&collective->input, request->inputs[0].data, tensor_bytes(&request->inputs[0]));
    for (int rank = 0; rank < collective->size; rank++)
        running->own_rows[rank] = (uint64_t)request->splits[rank];
    running->row_bytes[0] = row_bytes_of(&request->inputs[0]);
    collective->tensors = 1;
}

/* The rows, and how many came from each rank. */
static hvd_code add_result_and_splits(struct collective *collective, const uint64_t *rows, hvd_status *status)
{
    const struct running_batch *running = collective->owner;
    struct hvd_handle *handle = running->handles[0];
    hvd_code code = results_reserve(handle, 2, status);
    if (!code)
        code = add_result(collective, handle, 0, sum_over_ranks(collective, collective->size, rows, 0), 0,
                          status);
    if (code)
        return code;
    hvd_tensor *splits = &handle->results[1];
    int64_t shape[] = {collective->size};
    size_t bytes = (size_t)collective->size * sizeof *rows;
    *splits = (hvd_tensor){.ndim = 1, .dtype = HVD_INT64, .device_type = HVD_CPU};
    splits->data = result_allocate(&memory_host, 0, shape, 1, bytes, &splits->shape);
    if (!splits->data)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the splits of %s", handle->name);
    memcpy(splits->data, rows, bytes);
    return HVD_OK;
}

hvd_code layout_gathered(struct collective *collective, const uint64_t *rows, hvd_status *status)
{
    return operation_table[collective->operation].result == RESULT_exchanged
               ? add_result_and_splits(collective, rows, status)
               : add_results_of_all(collective, rows, status);
}

/* ---- reducescatter -------------------------------------------------------------------------------- */

/* The rows of one rank, of all tensors. */
static void add_block(struct running_batch *running, int rank)
{
    struct collective *collective = &running->collective;
    for (int i = 0; i < running->count; i++) {
        const hvd_request *request = &running->handles[i]->request;
        for (int t = 0; t < request->count; t++) {
            const hvd_tensor *input = &request->inputs[t];
            uint64_t row = row_bytes_of(input);
            if (!includes(running, running->handles[i], t))
                continue;
            struct range rows = pattern_rows((size_t)input->shape[0], collective->size, rank);
            char *start = rows.length && row ? (char *)input->data + rows.offset * row : NULL;
            vector_add(&collective->input, start, rows.length * row);
        }
    }
}

static hvd_code add_results_of_rank(struct running_batch *running, hvd_status *status)
{
    struct collective *collective = &running->collective;
    for (int i = 0; i < running->count; i++) {
        struct hvd_handle *handle = running->handles[i];
        hvd_code code = results_reserve(handle, handle->request.count, status);
        for (int t = 0; !code && t < handle->request.count; t++) {
            const hvd_tensor *input = &handle->request.inputs[t];
            struct range rows = pattern_rows((size_t)input->shape[0], collective->size, collective->rank);
            if (!includes(running, handle, t))
                continue;
            code = add_result(collective, handle, t, rows.length,
                              (uintptr_t)input->data + rows.offset * row_bytes_of(input), status);
        }
        if (code)
            return code;
    }
    return HVD_OK;
}

/* Input: the block of rank 0 (its rows of tensor 0, 1, ...), of rank 1, ... Output: the same, with the
 * results where this rank's block is. */
static hvd_code fill_by_blocks(struct running_batch *running, hvd_status *status)
{
    struct collective *collective = &running->collective;
    for (int rank = 0; rank < collective->size; rank++) {
        running->blocks[rank] = collective->input.length;
        add_block(running, rank);
    }
    running->blocks[collective->size] = collective->input.length;
    collective->blocks = running->blocks;
    size_t start = running->blocks[collective->rank], end = running->blocks[collective->rank + 1];
    size_t others = collective->input.length - (end - start);
    const int64_t *no_shape;
    bool needs_room = others && !collective->memory;
    /* Without a gap: the blocks of lower ranks, then those of higher ones. */
    running->room = needs_room ? result_allocate(&memory_host, 0, NULL, 0, others, &no_shape) : NULL;
    if (needs_room && !running->room)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for %zu bytes on their way around %s",
                          others, running->handles[0]->name);
    vector_add(&collective->output, running->room, start);
    hvd_code code = add_results_of_rank(running, status);
    if (!code)
        vector_add(&collective->output,
                   running->room && start < others ? (char *)running->room + start : NULL, others - start);
    return code;
}

/* All members of a batch are on one type of device. */
static void fill_device(struct running_batch *running)
{
    struct collective *collective = &running->collective;
    const struct hvd_handle *first = running->handles[0];
    if (first->memory->host_access)
        return;
    collective->memory = first->memory;
    collective->device_id = first->request.inputs[0].device_id;
    collective->ready = running->events;
    for (int i = 0; i < running->count; i++)
        if (running->handles[i]->ready)
            running->events[collective->ready_count++] = running->handles[i]->ready;
}

hvd_code layout_fill(struct running_batch *running, hvd_status *status)
{
    fill_device(running);
    if (operation_table[running->collective.operation].result == RESULT_part)
        return fill_by_blocks(running, status);
    if (operation_table[running->collective.operation].result == RESULT_exchanged)
        fill_with_splits(running);
    else
        fill_plainly(running);
    return HVD_OK;
}
