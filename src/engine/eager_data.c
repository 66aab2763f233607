/* eager_data.c - see eager_data.h. */
#include "engine/eager_data.h"

#include "base/types.h"
#include "coordinate/request.h"
#include "device/reduce.h"
#include "device/scaling.h"
#include "engine/comm.h"
#include "engine/context.h"
#include "engine/handle.h"
#include "engine/nonfinite.h"
#include "engine/observe.h"

#include <string.h>

/* Eager data pay only between hosts, where a round trip costs more than the additions of rank 0. A setting
 * that chooses an algorithm turns them off. */
uint32_t eager_threshold(const struct comm *comm)
{
    const struct settings *settings = &comm->context->settings;
    const struct backend_query query = {.operation = HVD_ALLREDUCE,
                                        .reduction = HVD_SUM,
                                        .types = 1U << HVD_FLOAT32,
                                        .device_type = HVD_CPU,
                                        .bytes = sizeof(float),
                                        .prescale = 1,
                                        .postscale = 1,
                                        .latency_threshold = comm->latency_threshold,
                                        .piece_bytes = comm->ring_piece_bytes};
    bool chosen = settings->deterministic || strcmp(settings->allreduce_algorithm, "auto") != 0 ||
                  backends_choose(&comm->backends, &query).backend != comm->backends.count - 1;
    return comm->topology.hosts > 1 && !chosen ? (uint32_t)settings->eager_threshold : 0;
}

static struct scaling scaling_of_request(const struct comm *comm, const hvd_request *request)
{
    return scaling_of(request->inputs[0].dtype, request->reduction, factor_of(request->prescale),
                      factor_of(request->postscale), comm->size);
}

void eager_contribute(void *owner, const struct pending *pending, uint8_t *data)
{
    const hvd_request *request = &((const struct hvd_handle *)pending->owner)->request;
    struct scaling scaling = scaling_of_request(owner, request);
    for (int i = 0; i < request->count; i++) {
        const hvd_tensor *input = &request->inputs[i];
        size_t bytes = tensor_bytes(input);
        if (bytes && scaling_begins(&scaling))
            scaling_begin(&scaling, data, input->data, bytes / hvd_dtype_size(input->dtype));
        else if (bytes)
            memcpy(data, input->data, bytes);
        data += bytes;
    }
}

void eager_combine(void *owner, const struct signature_summary *what, uint8_t *sum, const uint8_t *other)
{
    (void)owner;
    reduce_combine(what->dtype, what->reduction)(sum, sum, other, what->bytes / hvd_dtype_size(what->dtype));
}

/* Finishes the result as the last step of an algorithm does. Data in a message are not aligned, so they are
 * copied before they are read as elements. If all other ranks have joined, no reduction has turned bool into
 * 0 and 1 yet. */
static void write_result(const struct comm *comm, const hvd_request *request, const uint8_t *data)
{
    struct scaling scaling = scaling_of_request(comm, request);
    for (int i = 0; i < request->count; i++) {
        const hvd_tensor *output = request->outputs ? &request->outputs[i] : &request->inputs[i];
        size_t bytes = tensor_bytes(output), elements = bytes / hvd_dtype_size(output->dtype);
        if (bytes)
            memcpy(output->data, data, bytes);
        if (bytes && dtype_table[output->dtype].family == FAMILY_logical)
            reduce_combine(output->dtype, request->reduction)(output->data, output->data, output->data,
                                                              elements);
        if (bytes && scaling_ends(&scaling))
            scaling_end(&scaling, output->data, elements);
        data += bytes;
    }
}

void eager_finish(struct comm *comm, const struct batch *batch)
{
    struct operation_counters *counters = &comm->counters->operations[HVD_ALLREDUCE];
    struct hvd_handle *handle = batch->requests[0] ? batch->requests[0]->owner : NULL;
    counter_add(&counters->batches, 1);
    if (!handle) /* this rank has joined */
        return;
    counter_add(&counters->bytes, batch->requests[0]->eager_bytes);
    observe_eager(comm, handle, batch->sequence, batch->requests[0]->eager_bytes);
    if (nonfinite_searches(&comm->context->nonfinite, false))
        nonfinite_check_request(comm, handle, false);
    write_result(comm, &handle->request, batch->result);
    if (nonfinite_searches(&comm->context->nonfinite, true))
        nonfinite_check_request(comm, handle, true);
    handle_finish(handle, &(hvd_status){.code = HVD_OK});
}
