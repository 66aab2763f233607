/* batch.c - see batch.h. A batch is one allocation: the job, its handles, and the spans of both vectors. */
#include "engine/batch.h"

#include "base/status.h"
#include "base/types.h"
#include "engine/context.h"
#include "engine/progress.h"

#include <stdlib.h>

struct running_batch {
    struct job job;
    struct lane *lane;
    uint64_t sequence;
    int count;
    struct hvd_handle **handles;
    uint64_t *own_rows, *row_bytes; /* allgather */
};

static size_t tensor_bytes(const hvd_tensor *tensor)
{
    return (size_t)shape_elements(tensor->shape, tensor->ndim, 1) * hvd_dtype_size(tensor->dtype);
}

static int count_tensors(const struct batch *batch)
{
    int tensors = 0;
    for (int i = 0; i < batch->count; i++)
        tensors += ((const struct hvd_handle *)batch->requests[i]->owner)->request.count;
    return tensors;
}

static void vector_add(struct vector *vector, const hvd_tensor *tensor)
{
    size_t length = tensor_bytes(tensor);
    vector->spans[vector->count] = (struct span){tensor->data, length};
    vector->starts[vector->count++] = vector->length;
    vector->length += length;
}

static struct running_batch *allocate(const struct batch *batch, int tensors)
{
    size_t per_tensor = 2 * (sizeof(struct span) + sizeof(size_t) + sizeof(uint64_t));
    struct running_batch *running =
        calloc(1, sizeof *running + (size_t)batch->count * sizeof(struct hvd_handle *) +
                      (size_t)tensors * per_tensor);
    if (!running)
        return NULL;
    running->handles = (struct hvd_handle **)(running + 1);
    running->job.input.spans = (struct span *)(running->handles + batch->count);
    running->job.output.spans = running->job.input.spans + tensors;
    running->job.input.starts = (size_t *)(running->job.output.spans + tensors);
    running->job.output.starts = running->job.input.starts + tensors;
    running->own_rows = (uint64_t *)(running->job.output.starts + tensors);
    running->row_bytes = running->own_rows + tensors;
    return running;
}

static uint64_t row_bytes_of(const hvd_tensor *tensor)
{
    return (uint64_t)shape_elements(tensor->shape + 1, tensor->ndim - 1, 1) * hvd_dtype_size(tensor->dtype);
}

static void add_rows(struct running_batch *running, const hvd_tensor *tensor)
{
    int index = running->job.tensors++;
    running->own_rows[index] = (uint64_t)tensor->shape[0];
    running->row_bytes[index] = row_bytes_of(tensor);
}

static void lay_out(struct running_batch *running, const struct batch *batch)
{
    struct job *job = &running->job;
    for (int i = 0; i < batch->count; i++) {
        struct hvd_handle *handle = batch->requests[i]->owner;
        const hvd_request *request = &handle->request;
        running->handles[running->count++] = handle;
        for (int t = 0; t < request->count; t++) {
            vector_add(&job->input, &request->inputs[t]);
            if (request->operation == HVD_ALLGATHER)
                add_rows(running, &request->inputs[t]);
            else
                vector_add(&job->output, request->outputs ? &request->outputs[t] : &request->inputs[t]);
        }
    }
}

/* ---- results of allgather ------------------------------------------------------------------------- */

static uint64_t sum_over_ranks(const struct job *job, const uint64_t *rows, int tensor)
{
    uint64_t total = 0;
    for (int rank = 0; rank < job->size; rank++)
        total += rows[(size_t)rank * (size_t)job->tensors + (size_t)tensor];
    return total;
}

static hvd_code make_result(const hvd_tensor *input, uint64_t rows, hvd_tensor *result, hvd_status *status)
{
    uint64_t bytes = rows * row_bytes_of(input);
    int64_t shape[HVD_MAX_DIMENSIONS];
    for (int d = 1; d < input->ndim; d++)
        shape[d] = input->shape[d];
    shape[0] = (int64_t)rows;
    *result = *input;
    result->data = result_allocate(shape, input->ndim, bytes, &result->shape);
    if (!result->data)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for %llu bytes of a gathered tensor",
                          (unsigned long long)bytes);
    return HVD_OK;
}

static hvd_code make_results(struct job *job, const uint64_t *rows, hvd_status *status)
{
    struct running_batch *running = job->owner;
    int tensor = 0;
    for (int i = 0; i < running->count; i++) {
        struct hvd_handle *handle = running->handles[i];
        handle->results = calloc((size_t)handle->request.count, sizeof *handle->results);
        if (!handle->results)
            return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the results of %s",
                              handle->pending.name);
        for (int t = 0; t < handle->request.count; t++, tensor++) {
            hvd_code code = make_result(&handle->request.inputs[t], sum_over_ranks(job, rows, tensor),
                                        &handle->results[t], status);
            if (code)
                return code;
            vector_add(&job->output, &handle->results[t]);
        }
    }
    return HVD_OK;
}

/* ---- start and end -------------------------------------------------------------------------------- */

static void batch_done(struct job *job, const hvd_status *status)
{
    struct running_batch *running = job->owner;
    struct lane *lane = running->lane;
    for (int i = 0; i < running->count; i++)
        handle_finish(running->handles[i], status);
    coordinator_batch_done(lane->coordinator, running->sequence);
    lane->active = true;
    free(running);
    if (status->code)
        progress_fault(lane->context, status);
}

static void describe_job(struct running_batch *running, const hvd_request *request, uint16_t algorithm)
{
    const hvd_placement *placement = &running->lane->context->placement;
    struct job *job = &running->job;
    job->operation = request->operation;
    job->reduction = request->reduction;
    job->dtype = request->count && request->operation == HVD_ALLREDUCE ? request->inputs[0].dtype : HVD_UINT8;
    job->prescale = request->prescale != 0 ? request->prescale : 1;
    job->postscale = request->postscale != 0 ? request->postscale : 1;
    job->root = request->root;
    job->rank = placement->rank;
    job->size = placement->size;
    job->channel = running->lane->channel;
    job->algorithm = algorithm_table[algorithm];
    job->own_rows = running->own_rows;
    job->row_bytes = running->row_bytes;
    job->gathered = make_results;
    job->done = batch_done;
    job->owner = running;
}

/* The other ranks run the batch: the job can't go on. */
static void refuse_batch(struct lane *lane, const struct batch *batch, const hvd_status *cause)
{
    for (int i = 0; i < batch->count; i++)
        handle_finish(batch->requests[i]->owner, cause);
    progress_fault(lane->context, cause);
}

/* The number came from another process. */
static bool algorithm_is_for(uint16_t algorithm, hvd_operation operation)
{
    return algorithm < algorithm_count && algorithm_table[algorithm]->operation == operation;
}

void batch_start(struct lane *lane, const struct batch *batch)
{
    const struct hvd_handle *first = batch->requests[0]->owner;
    int rank = lane->context->placement.rank;
    hvd_status status;
    if (!algorithm_is_for(batch->algorithm, first->request.operation)) {
        status_set(&status, HVD_REFUSED,
                   "rank %d was told to run %s by algorithm %d, which it lacks; do the ranks run "
                   "different versions?",
                   rank, first->pending.name, batch->algorithm);
        refuse_batch(lane, batch, &status);
        return;
    }
    struct running_batch *running = allocate(batch, count_tensors(batch));
    if (!running) {
        status_set(&status, HVD_OUT_OF_MEMORY, "rank %d is out of memory for a batch of %d requests", rank,
                   batch->count);
        refuse_batch(lane, batch, &status);
        return;
    }
    running->lane = lane;
    running->sequence = batch->sequence;
    lay_out(running, batch);
    describe_job(running, &running->handles[0]->request, batch->algorithm);
    executor_start(lane->context->executor, &running->job);
}
