/* eager.c - see batch.h: small allreduces whose data travel in the coordinator's messages. Under the progress
 * lock. */
#include "base/status.h"
#include "base/types.h"
#include "coordinate/request.h"
#include "device/reduce.h"
#include "engine/batch.h"

#include <string.h>

/* Only between hosts, where a round trip costs more than the additions of rank 0; and only what no setting
 * wants moved otherwise. */
uint32_t eager_threshold(const struct comm *comm)
{
    const struct settings *settings = &comm->context->settings;
    const struct backend_query query = {.operation = HVD_ALLREDUCE,
                                        .reduction = HVD_SUM,
                                        .types = 1U << HVD_FLOAT32,
                                        .device_type = HVD_CPU,
                                        .bytes = sizeof(float),
                                        .latency_threshold = comm->latency_threshold,
                                        .piece_bytes = comm->ring_piece_bytes};
    bool chosen = settings->deterministic || strcmp(settings->allreduce_algorithm, "auto") != 0 ||
                  backends_choose(&comm->backends, &query).backend != comm->backends.count - 1;
    return comm->topology.hosts > 1 && !chosen ? (uint32_t)settings->eager_threshold : 0;
}

/* Averages of halves travel as float32, each part divided before it is added: a sum of theirs overflows where
 * the average would not. */

#define CHUNK 256 /* elements */

static void widen(const struct comm *comm, const hvd_tensor *input, size_t elements, double factor,
                  float *data)
{
    _Alignas(16) uint16_t scaled[CHUNK];
    for (size_t at = 0; at < elements; at += CHUNK) {
        size_t count = elements - at < CHUNK ? elements - at : CHUNK;
        const void *from = (const uint16_t *)input->data + at;
        if (factor != 1) {
            reduce_scale(input->dtype, scaled, from, count, factor, 1);
            from = scaled;
        }
        reduce_widen(input->dtype, data + at, from, count);
    }
    reduce_scale(HVD_FLOAT32, data, data, elements, 1, comm->size);
}

static void narrow(const hvd_tensor *output, size_t elements, const uint8_t *data)
{
    float wide[CHUNK];
    for (size_t at = 0; at < elements; at += CHUNK) {
        size_t count = elements - at < CHUNK ? elements - at : CHUNK;
        memcpy(wide, data + at * sizeof *wide, count * sizeof *wide);
        reduce_narrow(output->dtype, (uint16_t *)output->data + at, wide, count);
    }
}

/* Reads one tensor of the input, or writes one of the output; its bytes in a message. */

static size_t contribute_tensor(const struct comm *comm, const hvd_request *request, const hvd_tensor *input,
                                uint8_t *data)
{
    double factor = factor_of(request->prescale);
    size_t bytes = tensor_bytes(input), elements = bytes / hvd_dtype_size(input->dtype);
    if (is_average_of_halves(request->reduction, input->dtype)) {
        widen(comm, input, elements, factor, (float *)data);
        return elements * sizeof(float);
    }
    if (bytes && factor == 1)
        memcpy(data, input->data, bytes);
    else if (bytes)
        reduce_scale(input->dtype, data, input->data, elements, factor, 1);
    return bytes;
}

/* As the last step of an algorithm does it. In a message data lie anywhere: they are copied before they are
 * elements. Where all other ranks have joined, nothing has made 0 and 1 of bool yet. */
static size_t write_tensor(const struct comm *comm, const hvd_request *request, const hvd_tensor *output,
                           const uint8_t *data)
{
    double factor = factor_of(request->postscale);
    bool is_wide = is_average_of_halves(request->reduction, output->dtype);
    int64_t divisor = request->reduction == HVD_AVERAGE && !is_wide ? comm->size : 1;
    size_t bytes = tensor_bytes(output), elements = bytes / hvd_dtype_size(output->dtype);
    if (is_wide)
        narrow(output, elements, data);
    else if (bytes)
        memcpy(output->data, data, bytes);
    if (bytes && dtype_table[output->dtype].family == FAMILY_logical)
        reduce_combine(output->dtype, request->reduction)(output->data, output->data, output->data, elements);
    if (bytes && (factor != 1 || divisor != 1))
        reduce_scale(output->dtype, output->data, output->data, elements, factor, divisor);
    return is_wide ? elements * sizeof(float) : bytes;
}

void eager_contribute(void *owner, const struct pending *pending, uint8_t *data)
{
    const hvd_request *request = &((const struct hvd_handle *)pending->owner)->request;
    for (int i = 0; i < request->count; i++)
        data += contribute_tensor(owner, request, &request->inputs[i], data);
}

void eager_combine(void *owner, const struct signature_summary *what, uint8_t *sum, const uint8_t *other)
{
    hvd_dtype dtype = is_average_of_halves(what->reduction, what->dtype) ? HVD_FLOAT32 : what->dtype;
    (void)owner;
    reduce_combine(dtype, what->reduction)(sum, sum, other, what->eager_bytes / hvd_dtype_size(dtype));
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
    const hvd_request *request = &handle->request;
    const hvd_tensor *outputs = request->outputs ? request->outputs : request->inputs;
    const uint8_t *data = batch->result;
    for (int i = 0; i < request->count; i++)
        data += write_tensor(comm, request, &outputs[i], data);
    handle_finish(handle, &(hvd_status){.code = HVD_OK});
}
