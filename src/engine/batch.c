/* batch.c - turns a decided batch into collectives, and their end into that of its requests. Under the
 * progress lock. */
#include "engine/batch.h"

#include "base/pool.h"
#include "base/status.h"
#include "base/types.h"
#include "coll/pattern.h"
#include "coordinate/request.h"
#include "device/memory.h"
#include "engine/comm.h"
#include "engine/context.h"
#include "engine/eager_data.h"
#include "engine/handle.h"
#include "engine/nonfinite.h"
#include "engine/observe.h"
#include "engine/result.h"
#include "engine/stand_in.h"
#include "engine/tuning.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The tensor has a first dimension: all operations that count rows require one (operations.def). */
static uint64_t row_bytes_of(const hvd_tensor *tensor)
{
    return (uint64_t)shape_elements(tensor->shape + 1, tensor->ndim - 1, 1) * hvd_dtype_size(tensor->dtype);
}

/* How long the lists of a batch may become. */
struct lengths {
    size_t handles, tensors, own_rows, row_bytes, rows, inputs, outputs, blocks, events;
};

static struct lengths measure_lists(struct hvd_handle *const *handles, const struct batch *batch, int size)
{
    int count = batch->count;
    const struct operation *operation = &operation_table[handles[0]->request.operation];
    struct lengths lengths = {.handles = (size_t)count};
    bool apart = operation->results > 0;
    for (int i = 0; i < count; i++) {
        lengths.tensors += (size_t)handles[i]->request.count;
        /* If one request is not in place, the output is a list of its own, which repeats the inputs of the
         * requests that are. */
        apart |= handles[i]->request.outputs != NULL;
        lengths.events += (size_t)handles[i]->ready_count;
    }
    lengths.inputs = lengths.tensors;
    lengths.outputs = apart ? lengths.tensors : 0;
    if (operation->result == RESULT_joined || operation->result == RESULT_exchanged) {
        lengths.own_rows = operation->result == RESULT_exchanged ? (size_t)size : lengths.tensors;
        lengths.row_bytes = lengths.tensors;
        lengths.rows = batch->members[0].rows ? (size_t)size * lengths.tensors : 0;
    }
    if (operation->result == RESULT_part) {
        lengths.inputs = lengths.tensors * (size_t)size;
        /* The results, and the room before and after them: see fill_by_blocks. */
        lengths.outputs = lengths.tensors + 2;
        lengths.blocks = (size_t)size + 1;
    }
    return lengths;
}

static struct running_batch *layout_create(struct hvd_handle *const *handles, const struct batch *batch,
                                           int size)
{
    int count = batch->count;
    struct lengths lengths = measure_lists(handles, batch, size);
    size_t bytes = sizeof(struct running_batch) + lengths.handles * sizeof(struct hvd_handle *) +
                   (lengths.inputs + lengths.outputs) * (sizeof(struct span) + sizeof(size_t)) +
                   (lengths.own_rows + lengths.row_bytes + lengths.rows) * sizeof(uint64_t) +
                   lengths.blocks * sizeof(size_t) + lengths.events * sizeof(struct memory_event *);
    struct running_batch *running = pages_alloc(bytes);
    if (!running)
        return NULL;
    memset(running, 0, sizeof *running); /* an initializer would store word by word */
    running->bytes = bytes;
    running->count = count;
    running->in_place = !lengths.outputs;
    /* No element needs more alignment than a pointer does, so the lists may follow one another. */
    running->handles = (struct hvd_handle **)(running + 1);
    running->collective.input.spans = (struct span *)(running->handles + count);
    running->collective.output.spans = running->collective.input.spans + lengths.inputs;
    running->collective.input.starts = (size_t *)(running->collective.output.spans + lengths.outputs);
    running->collective.output.starts = running->collective.input.starts + lengths.inputs;
    running->own_rows = (uint64_t *)(running->collective.output.starts + lengths.outputs);
    running->row_bytes = running->own_rows + lengths.own_rows;
    running->rows = running->row_bytes + lengths.row_bytes;
    running->blocks = (size_t *)(running->rows + lengths.rows);
    running->events = (struct memory_event **)(running->blocks + lengths.blocks);
    memcpy(running->handles, handles, (size_t)count * sizeof *handles);
    return running;
}

static void layout_free(struct running_batch *running)
{
    result_free(running->room);
    pages_free(running, running->bytes);
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

static void fill_plainly(struct running_batch *running)
{
    struct collective *collective = &running->collective;
    for (int i = 0; i < running->count; i++) {
        const hvd_request *request = &running->handles[i]->request;
        for (int t = 0; t < request->count; t++) {
            const hvd_tensor *input = &request->inputs[t];
            const hvd_tensor *output = request->outputs ? &request->outputs[t] : input;
            if (!batch_includes(running, running->handles[i], t))
                continue;
            vector_add(&collective->input, input->data, tensor_bytes(input));
            /* layout_gathered adds the output once the rows of all ranks are known. */
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
    if (!handle->results) /* another collective of the request may have reserved them */
        handle->results = calloc((size_t)count, sizeof *handle->results);
    handle->result_count = handle->results ? count : 0;
    if (!handle->results)
        return status_no_memory(status);
    return HVD_OK;
}

static bool share_memory(const hvd_tensor *a, const hvd_tensor *b)
{
    uintptr_t start_a = (uintptr_t)a->data, start_b = (uintptr_t)b->data;
    return start_a < start_b + tensor_bytes(b) && start_b < start_a + tensor_bytes(a);
}

/* Returns true if the caller's output can hold the result. Otherwise the engine's own memory holds it, since
 * the other ranks depend on this one, and only this rank reports the error. */
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

/* Adds a result like the input, but with `rows` rows, as the next part of the output. `in_place`: where the
 * output starts if this rank's rows of both are the same memory. */
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

/* Returns the number of rows that the first `ranks` ranks have sent: the sum of rows[rank * tensors +
 * tensor], see coll/collective.h. */
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
        TRY(results_reserve(handle, handle->request.count, status));
        for (int t = 0; t < handle->request.count; t++) {
            const hvd_tensor *input = &handle->request.inputs[t];
            if (!batch_includes(running, handle, t))
                continue;
            uint64_t before = sum_over_ranks(collective, collective->rank, rows, tensor);
            uint64_t all = sum_over_ranks(collective, collective->size, rows, tensor);
            TRY(add_result(collective, handle, t, all, (uintptr_t)input->data - before * row_bytes_of(input),
                           status));
            tensor++;
        }
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

/* The first result is the rows, the second one how many of them each rank sent. */
static hvd_code add_result_and_splits(struct collective *collective, const uint64_t *rows, hvd_status *status)
{
    const struct running_batch *running = collective->owner;
    struct hvd_handle *handle = running->handles[0];
    TRY(results_reserve(handle, 2, status));
    TRY(add_result(collective, handle, 0, sum_over_ranks(collective, collective->size, rows, 0), 0, status));
    hvd_tensor *splits = &handle->results[1];
    int64_t shape[] = {collective->size};
    size_t bytes = (size_t)collective->size * sizeof *rows;
    *splits = (hvd_tensor){.ndim = 1, .dtype = HVD_INT64, .device_type = HVD_CPU};
    splits->data = result_allocate(&memory_host, 0, shape, 1, bytes, &splits->shape);
    if (!splits->data)
        return status_no_memory(status);
    memcpy(splits->data, rows, bytes);
    return HVD_OK;
}

/* ---- numbers of rows ------------------------------------------------------------------------------- */

/* The numbers are other ranks', so they may be too large. */
static hvd_code check_rows(const struct collective *collective, const uint64_t *rows, hvd_status *status)
{
    uint64_t bytes, all = 0;
    for (int rank = 0; rank < collective->size; rank++) {
        for (int tensor = 0; tensor < collective->tensors; tensor++) {
            uint64_t count = rows[(size_t)rank * (size_t)collective->tensors + (size_t)tensor];
            if (__builtin_mul_overflow(count, collective->row_bytes[tensor], &bytes) ||
                __builtin_add_overflow(all, bytes, &all))
                return status_set(status, HVD_OUT_OF_MEMORY,
                                  "%s's result has more bytes than memory can have; rank %d sends %llu rows",
                                  operation_name(collective->operation), rank, (unsigned long long)count);
        }
    }
    return HVD_OK;
}

/* Sets the output once the rows of all ranks are known. */
static hvd_code layout_gathered(struct collective *collective, const uint64_t *rows, hvd_status *status)
{
    TRY(check_rows(collective, rows, status));
    return operation_table[collective->operation].result == RESULT_exchanged
               ? add_result_and_splits(collective, rows, status)
               : add_results_of_all(collective, rows, status);
}

/* The decision has what each rank sends to each: reads what this rank receives. */
static void read_exchanged(struct collective *collective, const struct runs *list, uint64_t *rows)
{
    uint64_t rank = (uint64_t)collective->rank, size = (uint64_t)collective->size;
    struct runs_reader reader = runs_reader_of(list->bytes, list->length), first = reader;
    runs_get(&first);
    collective->rows_even = first.left == size * size - 1;
    for (int place = 0; place < collective->size; place++) {
        runs_skip(&reader, rank);
        rows[collective->topology->rank_at[place]] = runs_get(&reader);
        runs_skip(&reader, size - rank - 1);
    }
}

/* The decision has the rows of all tensors of the request, this collective those of its part. */
static void read_joined(const struct running_batch *running, const struct runs *list, uint64_t *rows)
{
    const struct collective *collective = &running->collective;
    const struct hvd_handle *handle = running->handles[0];
    struct runs_reader reader = runs_reader_of(list->bytes, list->length);
    for (int place = 0; place < collective->size; place++) {
        uint64_t *row = rows + (size_t)collective->topology->rank_at[place] * (size_t)collective->tensors;
        for (int i = 0; i < handle->request.count; i++) {
            uint64_t number = runs_get(&reader);
            if (batch_includes(running, handle, i))
                *row++ = number;
        }
    }
}

/* Reads the rows of all ranks, which the decision has by place, in the order of coll/collective.h. Those of
 * this rank must be its own, since its memory has no others. */
static hvd_code read_rows(struct running_batch *running, const struct runs *list, hvd_status *status)
{
    struct collective *collective = &running->collective;
    bool exchanged = operation_table[collective->operation].result == RESULT_exchanged;
    size_t rank = (size_t)collective->rank, tensors = (size_t)collective->tensors;
    if (exchanged)
        read_exchanged(collective, list, running->rows);
    else
        read_joined(running, list, running->rows);
    const uint64_t *own = running->own_rows + (exchanged ? rank : 0);
    if (memcmp(running->rows + rank * tensors, own, tensors * sizeof *own) != 0)
        return status_set(status, HVD_REFUSED,
                          "rank %d has other numbers of rows in %s than were decided; do the ranks run "
                          "different versions?",
                          running->comm->context->placement.rank, running->handles[0]->name);
    collective->rows = running->rows;
    return HVD_OK;
}

/* ---- reducescatter -------------------------------------------------------------------------------- */

/* Adds the rows of one rank, of all tensors. */
static void add_block(struct running_batch *running, int rank)
{
    struct collective *collective = &running->collective;
    for (int i = 0; i < running->count; i++) {
        const hvd_request *request = &running->handles[i]->request;
        for (int t = 0; t < request->count; t++) {
            const hvd_tensor *input = &request->inputs[t];
            uint64_t row = row_bytes_of(input);
            if (!batch_includes(running, running->handles[i], t))
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
        TRY(results_reserve(handle, handle->request.count, status));
        for (int t = 0; t < handle->request.count; t++) {
            const hvd_tensor *input = &handle->request.inputs[t];
            struct range rows = pattern_rows((size_t)input->shape[0], collective->size, collective->rank);
            if (!batch_includes(running, handle, t))
                continue;
            TRY(add_result(collective, handle, t, rows.length,
                           (uintptr_t)input->data + rows.offset * row_bytes_of(input), status));
        }
    }
    return HVD_OK;
}

/* The input is the block of rank 0 (its rows of tensor 0, 1, ...), then that of rank 1, and so on. The output
 * is the same, with the results in place of this rank's block. */
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
    /* The blocks of lower ranks, directly followed by those of higher ones. */
    running->room = needs_room ? result_allocate(&memory_host, 0, NULL, 0, others, &no_shape) : NULL;
    if (needs_room && !running->room)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for %zu bytes on their way around %s",
                          others, running->handles[0]->name);
    vector_add(&collective->output, running->room, start);
    TRY(add_results_of_rank(running, status));
    vector_add(&collective->output, running->room && start < others ? (char *)running->room + start : NULL,
               others - start);
    return HVD_OK;
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
        for (int event = 0; event < running->handles[i]->ready_count; event++)
            running->events[collective->ready_count++] = running->handles[i]->ready[event];
}

/* rows: of the ranks, by place; NULL: the back end exchanges them, if the operation has any. */
static hvd_code layout_fill(struct running_batch *running, const struct runs *rows, hvd_status *status)
{
    fill_device(running);
    if (operation_table[running->collective.operation].result == RESULT_part)
        return fill_by_blocks(running, status);
    if (operation_table[running->collective.operation].result == RESULT_exchanged)
        fill_with_splits(running);
    else
        fill_plainly(running);
    if (!rows)
        return HVD_OK;
    TRY(read_rows(running, rows, status));
    return layout_gathered(&running->collective, running->rows, status);
}

/* ---- batches ------------------------------------------------------------------------------------------- */

#define LONG_BYTES ((size_t)32 << 10)

/* Checks the values that this rank gives to a reduction, or gets from it, once they are in host memory. Those
 * that are only moved are checked if the tensors are there themselves, and all collectives of the request
 * have yet to begin, or have ended. */
static void check_values(const struct collective *collective, bool is_result)
{
    const struct running_batch *running = collective->owner;
    if (!nonfinite_searches(&running->comm->context->nonfinite, is_result))
        return;
    if (operation_reduces(collective->operation))
        nonfinite_check_batch(running, is_result);
    else if (!collective->memory && !(is_result ? running->handles[0]->collectives_left : running->follows))
        for (int i = 0; i < running->count; i++)
            nonfinite_check_request(running->comm, running->handles[i], is_result);
}

static void batch_done(struct collective *collective, const hvd_status *status)
{
    struct running_batch *running = collective->owner;
    struct comm *comm = running->comm;
    if (!status->code && !collective->memory)
        check_values(collective, true);
    if (collective->input.length > LONG_BYTES) /* moving them may have taken a good part of this turn */
        comm->context->now = 0;
    if (running->handles[0]->collectives_left) {
        running->handles[0]->collectives_left--;
        if (status->code)
            handle_fail(running->handles[0], status);
    } else {
        for (int i = 0; i < running->count; i++)
            handle_finish(running->handles[i], status);
        coordinator_batch_done(comm->coordinator, running->sequence);
        /* One batch fewer is in flight: the next flush may start a waiting one. */
        comm->active = true;
    }
    layout_free(running);
    if (status->code)
        context_fault(comm->context, status);
}

static void describe_job(struct running_batch *running, const hvd_request *request, const struct batch *batch,
                         hvd_dtype dtype)
{
    struct collective *collective = &running->collective;
    collective->operation = request->operation;
    collective->reduction = request->reduction;
    collective->dtype = dtype;
    /* An identity is not scaled. A factor applies to all members of a batch, or to none: see runs_alone in
     * decide.c. */
    bool stands_in = !batch->requests[0];
    collective->agreed_prescale = factor_of(request->prescale);
    collective->prescale = stands_in ? 1 : collective->agreed_prescale;
    collective->postscale = factor_of(request->postscale);
    collective->root = request->root;
    collective->rank = running->comm->rank;
    collective->size = running->comm->size;
    collective->topology = &running->comm->topology;
    collective->channel = batch->is_short ? CHANNEL_SHORT : CHANNEL_LONG;
    /* Such a request is alone in its batch. */
    collective->exclusive = batch->requests[0] && batch->requests[0]->apart;
    collective->choice = batch->choice;
    collective->own_rows = running->own_rows;
    collective->row_bytes = running->row_bytes;
    collective->gathered = layout_gathered;
    collective->phased = observed(running->comm->context) ? observe_phase : NULL;
    collective->staged = check_values;
    collective->done = batch_done;
    collective->owner = running;
}

/* The other ranks run the batch, so the job must end. Only the first `found` requests have stand-ins. */
static void refuse_batch(struct comm *comm, const struct batch *batch, struct hvd_handle *const *handles,
                         int found, const hvd_status *cause)
{
    for (int i = 0; i < batch->count; i++) {
        if (batch->requests[i])
            handle_finish(batch->requests[i]->owner, cause);
        else if (i < found)
            handle_finish(handles[i], cause);
    }
    context_fault(comm->context, cause);
}

static struct running_batch *lay_out(struct comm *comm, struct hvd_handle *const *handles,
                                     const struct batch *batch, hvd_dtype dtype, hvd_status *status)
{
    struct running_batch *running = layout_create(handles, batch, comm->size);
    if (!running) {
        context_no_memory(comm->context, status);
        return NULL;
    }
    running->comm = comm;
    running->sequence = batch->sequence;
    describe_job(running, &handles[0]->request, batch, dtype);
    return running;
}

static void start(struct comm *comm, struct running_batch *running)
{
    struct operation_counters *counters = &comm->counters->operations[running->collective.operation];
    counter_add(&counters->batches, !running->follows);
    counter_add(&counters->bytes, running->collective.input.length);
    observe_dispatched(running);
    if (!running->collective.memory)
        check_values(&running->collective, false);
    if (comm->tuning)
        tuning_count(comm->tuning, running);
    /* This only queues it: `done`, later in this turn or in another one, frees everything. */
    backends_start(&comm->backends, &running->collective);
}

/* Returns a bit for each element type in one part of a request. Operations that do not reduce treat elements
 * as bytes. */
static uint32_t types_of(const struct hvd_handle *handle, int part)
{
    const hvd_request *request = &handle->request;
    uint32_t types = 0;
    if (!operation_reduces(request->operation))
        return 1U << HVD_UINT8;
    for (int i = 0; i < request->count; i++) {
        if (!handle->parts.of || handle->parts.of[i] == part)
            types |= 1U << request->inputs[i].dtype;
    }
    return types;
}

/* Lays out one collective for each element type. */
static hvd_code lay_out_part(struct comm *comm, struct hvd_handle *const *handles, const struct batch *batch,
                             int part, struct collective_queue *laid_out, hvd_status *status)
{
    hvd_code code = HVD_OK;
    for (uint32_t types = types_of(handles[0], part); !code && types; types &= types - 1) {
        struct running_batch *running =
            lay_out(comm, handles, batch, (hvd_dtype)__builtin_ctz(types), status);
        if (!running)
            return HVD_OUT_OF_MEMORY;
        running->part = part;
        running->follows = laid_out->head != NULL;
        handles[0]->collectives_left += running->follows;
        collective_queue_push(laid_out, &running->collective);
        code = layout_fill(running, batch->members[0].rows, status);
    }
    return code;
}

/* The requests of a batch have one element type and one part each. A group with more of either is alone in
 * its batch: either all of its collectives start, or none. */
static hvd_code run(struct comm *comm, struct hvd_handle *const *handles, const struct batch *batch,
                    hvd_status *status)
{
    struct collective_queue laid_out = {0};
    hvd_code code = HVD_OK;
    for (int part = 0; !code && part < handles[0]->parts.count; part++)
        code = lay_out_part(comm, handles, batch, part, &laid_out, status);
    for (struct collective *collective; (collective = collective_queue_pop(&laid_out));) {
        if (code)
            layout_free(collective->owner);
        else
            start(comm, collective->owner);
    }
    return code;
}

#define FEW 32 /* up to this many requests, a batch's handles are on the stack */

void batch_start(struct comm *comm, const struct batch *batch)
{
    assert(context_is_held(comm->context));
    hvd_status status;
    int found = 0;
    if (batch->result) {
        eager_finish(comm, batch);
        return;
    }
    size_t bytes = (size_t)batch->count * sizeof(struct hvd_handle *);
    struct hvd_handle *few[FEW], **handles = batch->count <= FEW ? few : pages_alloc(bytes);
    hvd_code code = handles ? HVD_OK : HVD_OUT_OF_MEMORY;
    if (code)
        context_no_memory(comm->context, &status);
    while (!code && (!found || found < batch->count)) { /* a batch has at least one request */
        if (batch->requests[found])
            handles[found] = batch->requests[found]->owner;
        else /* this rank has joined */
            code = stand_in_create(comm, &batch->members[found], &handles[found], &status);
        found += !code;
    }
    if (!code && operation_changes_sets(handles[0]->request.operation)) {
        /* It moves no bytes and ends at once. This is the only call into a coordinator from its own output
         * function; it only lowers the count of running batches. */
        coordinator_batch_done(comm->coordinator, batch->sequence);
        handles[0]->next = comm->context->decided;
        comm->context->decided = handles[0];
    } else if (!code) {
        code = run(comm, handles, batch, &status);
    }
    if (code)
        refuse_batch(comm, batch, handles, found, &status);
    if (handles != few)
        pages_free(handles, bytes);
}
