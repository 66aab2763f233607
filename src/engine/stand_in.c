/* stand_in.c - see stand_in.h. */
#include "engine/stand_in.h"

#include "base/status.h"
#include "base/types.h"
#include "coordinate/name.h"
#include "coordinate/request.h"
#include "device/memory.h"
#include "device/reduce.h"
#include "engine/comm.h"
#include "engine/context.h"
#include "engine/observe.h"
#include "engine/parts.h"

#include <stdlib.h>

#define ALIGNMENT 64 /* of every tensor in the block; memory_ops.allocate aligns the block itself */

static size_t round_up(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t elements_of(const hvd_tensor *tensor)
{
    return (size_t)shape_elements(tensor->shape, tensor->ndim, 1);
}

static hvd_code fill(const struct memory_ops *memory, const hvd_request *request, const hvd_tensor *tensor,
                     hvd_status *status)
{
    uint8_t element[IDENTITY_BYTES];
    size_t elements = elements_of(tensor);
    if (!elements || !operation_reduces(request->operation))
        return HVD_OK;
    identity_element(tensor->dtype, request->reduction, element);
    return memory->fill(tensor->data, element, hvd_dtype_size(tensor->dtype), elements, status);
}

/* Allocates one block for all tensors, and fills the tensors that are reduced. */
static hvd_code make_data(const struct comm *comm, const struct memory_ops *memory,
                          const hvd_request *request, hvd_tensor *tensors, void **data, hvd_status *status)
{
    size_t total = 0, at = 0;
    int32_t device_id = context_device(comm->context, memory);
    for (int i = 0; i < request->count; i++)
        total += round_up(elements_of(&tensors[i]) * hvd_dtype_size(tensors[i].dtype));
    char *block = memory->allocate(device_id, total);
    if (!block)
        return status_set(
            status, HVD_OUT_OF_MEMORY,
            "rank %d has joined and is out of memory for the %zu bytes of its identity elements "
            "in an operation of the other ranks",
            comm->context->placement.rank, total);
    hvd_code code = HVD_OK;
    for (int i = 0; !code && i < request->count; i++) {
        tensors[i].data = block + at;
        tensors[i].device_id = device_id;
        at += round_up(elements_of(&tensors[i]) * hvd_dtype_size(tensors[i].dtype));
        code = fill(memory, request, &tensors[i], status);
    }
    if (code)
        memory->release(block);
    *data = block;
    return code;
}

static hvd_code create(struct comm *comm, int device_type, hvd_request *request, hvd_tensor *tensors,
                       struct parts parts, struct hvd_handle **handle, hvd_status *status)
{
    const struct memory_ops *memory;
    void *data = NULL;
    hvd_status reason;
    if (memory_open(device_type, &memory, &reason))
        return status_set(status, HVD_UNSUPPORTED,
                          "rank %d has joined, and the others' tensors are on %.700s; join where every rank "
                          "has such a device",
                          comm->context->placement.rank, reason.text);
    TRY(make_data(comm, memory, request, tensors, &data, status));
    hvd_code code = handle_create(comm->context, request, comm->size, false, handle, status);
    if (code) {
        memory->release(data);
        return code;
    }
    (*handle)->own_data = data;
    (*handle)->parts = parts;
    (*handle)->observed = observed(comm->context); /* though this rank has submitted nothing */
    handle_release(*handle);                       /* the engine's reference is the only one */
    return HVD_OK;
}

/* The number of rows, which a signature leaves out, is 0 for a rank that has joined. */
static bool read_tensors(struct wire_reader *reader, const struct signature_head *head, hvd_tensor *tensors,
                         struct parts *parts, struct signature_tensor *shapes)
{
    for (int i = 0; i < head->count; i++) {
        shapes[i].shape[0] = 0;
        if (!signature_read_tensor(reader, head, &shapes[i]))
            return false;
        parts->of[i] = (uint16_t)shapes[i].part;
        parts->count = shapes[i].part < parts->count ? parts->count : shapes[i].part + 1;
        tensors[i] = (hvd_tensor){.shape = shapes[i].shape,
                                  .ndim = shapes[i].ndim,
                                  .dtype = shapes[i].dtype,
                                  .device_type = head->device_type};
    }
    return true;
}

static hvd_request request_of(const struct comm *comm, const char *name, const struct signature_head *head,
                              hvd_tensor *tensors)
{
    return (hvd_request){.struct_size = sizeof(hvd_request),
                         .operation = head->operation,
                         .name = name_plain(head->operation, name),
                         .count = head->count,
                         .grouped = head->grouped,
                         .inputs = tensors,
                         .reduction = head->reduction,
                         .prescale = &head->prescale,
                         .postscale = &head->postscale,
                         .root = head->root,
                         .process_set = comm->id};
}

hvd_code stand_in_create(struct comm *comm, const struct member *member, struct hvd_handle **handle,
                         hvd_status *status)
{
    struct wire_reader reader = wire_reader_of(member->signature->bytes, member->signature->length);
    struct signature_head head;
    if (!signature_read_head(&reader, &head)) /* not reached: the coordinator has read it */
        return status_set(status, HVD_REFUSED, "an agreed request is malformed");
    size_t count = (size_t)head.count + 1;
    hvd_tensor *tensors = calloc(count, sizeof *tensors);
    struct signature_tensor *shapes = calloc(count, sizeof *shapes);
    struct parts parts = {.of = calloc(count, sizeof *parts.of), .count = 1};
    hvd_code code = HVD_OK;
    if (!tensors || !shapes || !parts.of)
        code = status_no_memory(status);
    else if (!read_tensors(&reader, &head, tensors, &parts, shapes))
        code = status_set(status, HVD_REFUSED, "an agreed request is malformed");
    hvd_request request = request_of(comm, member->name, &head, tensors);
    if (!code)
        code = create(comm, head.device_type, &request, tensors, parts, handle, status);
    if (code)
        parts_free(&parts);
    free(tensors);
    free(shapes);
    return code;
}
