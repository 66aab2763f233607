/* request.c - checks requests, and turns them into signatures and back. No state; any thread.
 *
 * A signature has operation, reduction, type, device (u8 each; the type is that of tensor 0 if it is
 * reduced), root (u32), prescale, postscale (f64), which are the fusion key; then priority (u32), grouped
 * (u8), count (u32), and per tensor type, dimensions (u8 each), part of the group (u32) and extents (u64),
 * without the first one if it may differ by rank. */
#include "coordinate/request.h"

#include "base/status.h"
#include "base/types.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define HEAD_LENGTH   ((size_t)FUSION_KEY_LENGTH + 4 + 1 + 4)
#define TENSOR_LENGTH ((size_t)1 + 1 + 4) /* without extents */

#define FACTORS_LENGTH 16 /* at the end of the fusion key */

/* ---- checks ----------------------------------------------------------------------------------------- */

static hvd_code check_operation(const hvd_request *request, hvd_status *status)
{
    if (!operation_known((int)request->operation))
        return status_set(status, HVD_INVALID_ARGUMENT, "there is no operation number %d",
                          (int)request->operation);
    const char *text = operation_name(request->operation);
    bool bare = operation_table[request->operation].shape == SHAPE_no_tensors;
    if (bare ? request->count != 0 : request->count < 1 || request->count > REQUEST_TENSOR_LIMIT)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s of %d tensors; it takes %s", text,
                          (int)request->count, bare ? "none" : "1 to 16384");
    if (!bare && !request->inputs)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s: inputs is NULL", text);
    return HVD_OK;
}

/* The ranks of a process set must be ascending, so that equal sets have equal bytes. */
static hvd_code check_ranks(const hvd_request *request, hvd_status *status)
{
    const char *text = operation_name(request->operation);
    if (!request->ranks || request->rank_count < 1 || request->rank_count > REQUEST_RANK_LIMIT)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s: a process set has 1 to %d ranks, not %d", text,
                          REQUEST_RANK_LIMIT, (int)request->rank_count);
    for (int i = 0; i < request->rank_count; i++) {
        if (request->ranks[i] < 0 || (i && request->ranks[i] <= request->ranks[i - 1]))
            return status_set(status, HVD_INVALID_ARGUMENT,
                              "%s: the ranks must be ascending, each once, and not negative", text);
    }
    return HVD_OK;
}

/* Checks fields that only some operations use. */
static hvd_code check_details(const hvd_request *request, hvd_status *status)
{
    const char *text = operation_name(request->operation);
    if (operation_takes(request->operation, ARGUMENT_splits) && request->count != 1)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s of %d tensors; it takes 1", text,
                          (int)request->count);
    if (operation_takes(request->operation, ARGUMENT_root) && request->root < 0)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s: the root rank %d is negative", text,
                          (int)request->root);
    if (operation_takes(request->operation, ARGUMENT_members) &&
        (request->root < 0 || request->root >= HVD_OPENED_SETS))
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: the least id is %d; ids of process sets are below %d", text,
                          (int)request->root, HVD_OPENED_SETS);
    if (operation_takes(request->operation, ARGUMENT_members))
        return check_ranks(request, status);
    if (!operation_reduces(request->operation))
        return HVD_OK;
    if (!reduction_known((int)request->reduction))
        return status_set(status, HVD_INVALID_ARGUMENT, "%s: there is no reduction number %d", text,
                          (int)request->reduction);
    return HVD_OK;
}

static hvd_code check_shape(const hvd_request *request, const hvd_tensor *tensor, int index,
                            hvd_status *status)
{
    const char *text = operation_name(request->operation);
    int least = operation_table[request->operation].shape != SHAPE_same_shape;
    if (!tensor->ndim && least)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s: tensor %d has no dimensions; it must have rows",
                          text, index);
    if (tensor->ndim < least || tensor->ndim > HVD_MAX_DIMENSIONS || (tensor->ndim && !tensor->shape))
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: tensor %d has %d dimensions%s; it may have %d to %d", text, index,
                          (int)tensor->ndim, tensor->shape ? "" : " and no shape", least, HVD_MAX_DIMENSIONS);
    int64_t elements = shape_elements(tensor->shape, tensor->ndim, dtype_table[tensor->dtype].size);
    char shape[128];
    if (elements < 0)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s: tensor %d has the impossible shape %s", text,
                          index, shape_text(tensor->shape, tensor->ndim, shape, sizeof shape));
    if (elements > 0 && !tensor->data)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s: tensor %d of shape %s has no data", text, index,
                          shape_text(tensor->shape, tensor->ndim, shape, sizeof shape));
    return HVD_OK;
}

static hvd_code check_tensor(const hvd_request *request, const hvd_tensor *tensor, int index,
                             hvd_status *status)
{
    const char *text = operation_name(request->operation);
    if (!dtype_known((int)tensor->dtype))
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: tensor %d has type number %d, which does not exist", text, index,
                          (int)tensor->dtype);
    if (tensor->device_type < 1 || tensor->device_type > UINT8_MAX)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: tensor %d is on a device of type %d, which does not exist", text, index,
                          (int)tensor->device_type);
    if (tensor->device_type != request->inputs[0].device_type)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: tensor %d is on a device of type %d, tensor 0 on one of type %d; make one "
                          "request per type of device",
                          text, index, (int)tensor->device_type, (int)request->inputs[0].device_type);
    return check_shape(request, tensor, index, status);
}

static hvd_code check_output(const hvd_request *request, int index, hvd_status *status)
{
    const hvd_tensor *input = &request->inputs[index];
    const hvd_tensor *output = &request->outputs[index];
    TRY(check_tensor(request, output, index, status));
    /* The number of rows of a result is known only when the operation runs. */
    int first = operation_makes_results(request->operation);
    bool same = input->ndim == output->ndim && input->dtype == output->dtype;
    for (int d = first; same && d < input->ndim; d++)
        same = input->shape[d] == output->shape[d];
    char shapes[2][128];
    return same ? HVD_OK
                : status_set(status, HVD_INVALID_ARGUMENT,
                             "%s: output %d is %s %s, its input %s %s; type and shape must be the same%s",
                             operation_name(request->operation), index, hvd_dtype_name(output->dtype),
                             shape_text(output->shape, output->ndim, shapes[0], sizeof shapes[0]),
                             hvd_dtype_name(input->dtype),
                             shape_text(input->shape, input->ndim, shapes[1], sizeof shapes[1]),
                             first ? " but for the first dimension" : "");
}

static hvd_code check_reduction(const hvd_request *request, hvd_status *status)
{
    if (!operation_reduces(request->operation))
        return HVD_OK;
    double factors[] = {factor_of(request->prescale), factor_of(request->postscale)};
    const hvd_tensor *tensor = request->inputs, *last = tensor + request->count - 1;
    hvd_code code;
    do
        code = types_check_reduction(request->operation, tensor->dtype, request->reduction, factors, status);
    while (!code && tensor++ < last);
    return code;
}

static hvd_code check_request(const hvd_request *request, hvd_status *status)
{
    TRY(check_operation(request, status));
    TRY(check_details(request, status));
    for (int i = 0; i < request->count; i++) {
        TRY(check_tensor(request, &request->inputs[i], i, status));
        if (request->outputs)
            TRY(check_output(request, i, status));
    }
    return check_reduction(request, status);
}

/* ---- to bytes --------------------------------------------------------------------------------------- */

/* The root of a removal is the id of the set, that of an addition the least id that it may get. */
static bool has_root(hvd_operation operation)
{
    return operation_takes(operation, ARGUMENT_root) || operation_takes(operation, ARGUMENT_set) ||
           operation_takes(operation, ARGUMENT_members);
}

/* Every NaN is the same factor, whatever its bits. */
static void put_factor(struct wire_writer *writer, const double *given)
{
    double factor = factor_of(given);
    wire_put_f64(writer, isnan(factor) ? (double)NAN : factor);
}

static void put_head(struct wire_writer *writer, const hvd_request *request)
{
    bool reduces = operation_reduces(request->operation);
    wire_put_u8(writer, (uint8_t)request->operation);
    wire_put_u8(writer, reduces ? (uint8_t)request->reduction : 0);
    wire_put_u8(writer, reduces ? (uint8_t)request->inputs[0].dtype : 0);
    wire_put_u8(writer, request->count ? (uint8_t)request->inputs[0].device_type : HVD_CPU);
    wire_put_u32(writer, has_root(request->operation) ? (uint32_t)request->root : 0);
    put_factor(writer, reduces ? request->prescale : NULL);
    put_factor(writer, reduces ? request->postscale : NULL);
    wire_put_u32(writer, (uint32_t)request->priority);
    wire_put_u8(writer, request->grouped != 0);
    wire_put_u32(writer, (uint32_t)request->count);
}

hvd_code signature_measure(const hvd_request *request, uint32_t *length, hvd_status *status)
{
    TRY(check_request(request, status));
    /* The first extent that ranks compare. */
    size_t first = operation_table[request->operation].shape == SHAPE_same_rows;
    size_t bytes = HEAD_LENGTH;
    if (operation_takes(request->operation, ARGUMENT_members))
        bytes += ((size_t)request->rank_count + 1) * sizeof(uint32_t);
    for (int i = 0; i < request->count; i++)
        bytes += TENSOR_LENGTH + ((size_t)request->inputs[i].ndim - first) * sizeof(uint64_t);
    if (bytes > REQUEST_SIGNATURE_LIMIT)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "the shapes of a group of %d tensors need %zu bytes, at most %d are allowed; "
                          "split the group",
                          (int)request->count, bytes, REQUEST_SIGNATURE_LIMIT);
    *length = (uint32_t)bytes;
    return HVD_OK;
}

struct signature signature_encode(const hvd_request *request, const uint16_t *parts, uint8_t *bytes,
                                  uint32_t length)
{
    struct wire_writer writer = {.bytes = bytes, .capacity = length};
    put_head(&writer, request);
    if (operation_takes(request->operation, ARGUMENT_members)) {
        wire_put_u32(&writer, (uint32_t)request->rank_count);
        for (int i = 0; i < request->rank_count; i++)
            wire_put_u32(&writer, (uint32_t)request->ranks[i]);
    }
    int first = operation_table[request->operation].shape == SHAPE_same_rows;
    for (int i = 0; i < request->count; i++) {
        wire_put_u8(&writer, (uint8_t)request->inputs[i].dtype);
        wire_put_u8(&writer, (uint8_t)request->inputs[i].ndim);
        wire_put_u32(&writer, parts ? parts[i] : 0);
        for (int d = first; d < request->inputs[i].ndim; d++)
            wire_put_u64(&writer, (uint64_t)request->inputs[i].shape[d]);
    }
    return (struct signature){bytes, length};
}

bool signature_equal(const struct signature *a, const struct signature *b)
{
    return a->length == b->length && memcmp(a->bytes, b->bytes, a->length) == 0;
}

/* ---- from bytes ------------------------------------------------------------------------------------- */

bool signature_read_head(struct wire_reader *reader, struct signature_head *head)
{
    head->operation = (hvd_operation)wire_get_u8(reader);
    head->reduction = (hvd_reduction)wire_get_u8(reader);
    uint8_t dtype = wire_get_u8(reader);
    head->device_type = wire_get_u8(reader);
    uint32_t root = wire_get_u32(reader);
    head->prescale = wire_get_f64(reader);
    head->postscale = wire_get_f64(reader);
    head->priority = (int32_t)wire_get_u32(reader);
    head->grouped = wire_get_u8(reader);
    uint32_t count = wire_get_u32(reader);
    /* The bytes may be another rank's: every field that indexes a table is checked, the reduction only if it
     * is used. */
    if (reader->failed || !operation_known((int)head->operation) || root > INT32_MAX ||
        count > REQUEST_TENSOR_LIMIT)
        return false;
    const struct operation *row = &operation_table[head->operation];
    bool reduces = operation_reduces(head->operation);
    head->dtype = reduces ? (hvd_dtype)dtype : HVD_UINT8;
    head->root = (int32_t)root;
    head->count = (int)count;
    head->may_fuse = row->batching == BATCHING_fuse;
    head->first_dimension = row->shape == SHAPE_same_rows;
    return (count == 0) == (row->shape == SHAPE_no_tensors) &&
           (!reduces || (reduction_known((int)head->reduction) && dtype_known(dtype)));
}

bool signature_read_ranks(struct wire_reader *reader, struct wire_reader *ranks)
{
    uint32_t count = wire_get_u32(reader);
    if (reader->failed || count < 1 || count > REQUEST_RANK_LIMIT)
        return false;
    const uint8_t *bytes = wire_get_raw(reader, (size_t)count * sizeof(uint32_t));
    *ranks = wire_reader_of(bytes, (size_t)count * sizeof(uint32_t));
    return bytes;
}

bool signature_read_tensor(struct wire_reader *reader, const struct signature_head *head,
                           struct signature_tensor *tensor)
{
    tensor->dtype = (hvd_dtype)wire_get_u8(reader);
    tensor->ndim = wire_get_u8(reader);
    uint32_t part = wire_get_u32(reader);
    tensor->part = (int)part;
    if (reader->failed || !dtype_known((int)tensor->dtype) || tensor->ndim > HVD_MAX_DIMENSIONS ||
        tensor->ndim < head->first_dimension || part >= (uint32_t)head->count)
        return false;
    for (int d = head->first_dimension; d < tensor->ndim; d++)
        tensor->shape[d] = (int64_t)wire_get_u64(reader);
    return !reader->failed;
}

void signature_factors(const struct signature_summary *summary, double *prescale, double *postscale)
{
    struct wire_reader reader =
        wire_reader_of(summary->fusion_key + FUSION_KEY_LENGTH - FACTORS_LENGTH, FACTORS_LENGTH);
    *prescale = wire_get_f64(&reader);
    *postscale = wire_get_f64(&reader);
}

bool signature_summarize(const struct signature *signature, struct signature_summary *summary)
{
    struct wire_reader reader = wire_reader_of(signature->bytes, signature->length);
    struct signature_head head;
    if (!signature_read_head(&reader, &head))
        return false;
    *summary = (struct signature_summary){.operation = head.operation,
                                          .reduction = head.reduction,
                                          .dtype = head.dtype,
                                          .types = 1U << head.dtype,
                                          .device_type = head.device_type,
                                          .grouped = head.grouped,
                                          .prescaled = head.prescale != 1,
                                          .fusion_key = signature->bytes,
                                          .tensors = head.count,
                                          .priority = head.priority,
                                          .root = head.root};
    struct wire_reader ranks;
    bool divided = false;
    if (operation_takes(head.operation, ARGUMENT_members) && !signature_read_ranks(&reader, &ranks))
        return false;
    for (int i = 0; i < head.count; i++) {
        struct signature_tensor tensor;
        if (!signature_read_tensor(&reader, &head, &tensor))
            return false;
        int skip = head.first_dimension;
        size_t width = hvd_dtype_size(tensor.dtype);
        int64_t elements = shape_elements(tensor.shape + skip, tensor.ndim - skip, width);
        if (elements < 0)
            return false;
        /* If the first extent may differ by rank, the payload is not known: 0. */
        if (!skip)
            summary->bytes += (uint64_t)elements * width;
        if (summary->bytes > INT64_MAX)
            return false;
        if (operation_reduces(head.operation))
            summary->types |= 1U << tensor.dtype;
        divided |= tensor.part > 0;
    }
    /* The engine moves the types and the parts of a group one by one. */
    summary->may_fuse = head.may_fuse && summary->types == 1U << head.dtype && !divided;
    return wire_done(&reader);
}
