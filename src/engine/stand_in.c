/* stand_in.c - see stand_in.h. */
#include "engine/stand_in.h"

#include "base/status.h"
#include "base/types.h"
#include "coordinate/request.h"
#include "device/identity.h"
#include "engine/context.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64

static size_t round_up(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t elements_of(const hvd_tensor *tensor)
{
    return (size_t)shape_elements(tensor->shape, tensor->ndim, 1);
}

/* One block for all tensors, filled where it is reduced; NULL when memory is out. */
static void *make_data(const hvd_request *request, hvd_tensor *tensors)
{
    /* Never 0, for which aligned_alloc may return NULL. */
    size_t total = ALIGNMENT;
    for (int i = 0; i < request->count; i++)
        total += round_up(elements_of(&tensors[i]) * hvd_dtype_size(tensors[i].dtype));
    char *block = aligned_alloc(ALIGNMENT, total);
    size_t at = 0;
    for (int i = 0; block && i < request->count; i++) {
        size_t elements = elements_of(&tensors[i]);
        tensors[i].data = block + at;
        at += round_up(elements * hvd_dtype_size(tensors[i].dtype));
        if (operation_reduces(request->operation))
            identity_fill(tensors[i].data, elements, tensors[i].dtype, request->reduction);
    }
    return block;
}

static hvd_code create(struct comm *comm, hvd_request *request, hvd_tensor *tensors,
                       struct hvd_handle **handle, hvd_status *status)
{
    void *data = make_data(request, tensors);
    if (!data)
        return status_set(status, HVD_OUT_OF_MEMORY,
                          "rank %d has joined and is out of memory for its part in what the others do",
                          comm->context->placement.rank);
    hvd_code code = handle_create(comm->context, request, comm->size, false, handle, status);
    if (code) {
        free(data);
        return code;
    }
    (*handle)->own_data = data;
    handle_release(*handle); /* the engine's reference is the only one */
    return HVD_OK;
}

/* What is left out of a signature, the rows of this rank, is none. */
static bool read_tensors(struct wire_reader *reader, const struct signature_head *head, hvd_tensor *tensors,
                         struct signature_tensor *shapes)
{
    for (int i = 0; i < head->count; i++) {
        shapes[i].shape[0] = 0;
        if (!signature_read_tensor(reader, head, &shapes[i]))
            return false;
        tensors[i] = (hvd_tensor){.shape = shapes[i].shape,
                                  .ndim = shapes[i].ndim,
                                  .dtype = shapes[i].dtype,
                                  .device_type = head->device_type};
    }
    return true;
}

/* Without the operation, which handle_create puts in front. */
static const char *user_name(const char *name)
{
    const char *dot = strchr(name, '.');
    return dot ? dot + 1 : name;
}

static hvd_request request_of(const struct comm *comm, const char *name, const struct signature_head *head,
                              hvd_tensor *tensors)
{
    return (hvd_request){.struct_size = sizeof(hvd_request),
                         .operation = head->operation,
                         .name = user_name(name),
                         .count = head->count,
                         .grouped = head->grouped,
                         .inputs = tensors,
                         .reduction = head->reduction,
                         .prescale = head->prescale,
                         .postscale = head->postscale,
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
    hvd_code code = HVD_OK;
    if (!tensors || !shapes)
        code = status_set(status, HVD_OUT_OF_MEMORY, "out of memory for a batch while this rank has joined");
    else if (!read_tensors(&reader, &head, tensors, shapes))
        code = status_set(status, HVD_REFUSED, "an agreed request is malformed");
    hvd_request request = request_of(comm, member->name, &head, tensors);
    if (!code)
        code = create(comm, &request, tensors, handle, status);
    free(tensors);
    free(shapes);
    return code;
}
