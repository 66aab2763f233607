/* batch.c - see batch.h; and the requests of a rank that has joined. */
#include "engine/batch.h"

#include "base/pool.h"
#include "base/status.h"
#include "base/types.h"
#include "coordinate/request.h"
#include "device/memory.h"
#include "device/reduce.h"
#include "engine/comm.h"
#include "engine/context.h"
#include "engine/progress.h"

#include <stdlib.h>
#include <string.h>

/* ---- the contribution of a rank that has joined to the later collectives of the others ----------------- */

#define ALIGNMENT 64 /* of every tensor; of the block it is the memory's */

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

/* One block for all tensors, filled where it is reduced. */
static hvd_code make_data(const struct comm *comm, const struct memory_ops *memory,
                          const hvd_request *request, hvd_tensor *tensors, void **data, hvd_status *status)
{
    size_t total = 0, at = 0;
    for (int i = 0; i < request->count; i++)
        total += round_up(elements_of(&tensors[i]) * hvd_dtype_size(tensors[i].dtype));
    char *block = memory->allocate(0, total);
    if (!block)
        return status_set(status, HVD_OUT_OF_MEMORY,
                          "rank %d has joined and is out of memory for its part in what the others do",
                          comm->context->placement.rank);
    hvd_code code = HVD_OK;
    for (int i = 0; !code && i < request->count; i++) {
        tensors[i].data = block + at;
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
    const struct memory_ops *memory = memory_of(device_type);
    void *data = NULL;
    if (!memory)
        return status_set(
            status, HVD_UNSUPPORTED,
            "rank %d has joined, and the others use devices of type %d, which its process can't "
            "use; join where every rank has such a device",
            comm->context->placement.rank, device_type);
    hvd_code code = make_data(comm, memory, request, tensors, &data, status);
    if (code)
        return code;
    code = handle_create(comm->context, request, comm->size, false, handle, status);
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

/* What is left out of a signature, the rows of this rank, is none. */
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

/* A handle of the engine's own for the request that was agreed on: with the reduction's identity as data, on
 * the type of device that was agreed on, no rows to gather, and memory for what comes and is thrown away. */
static hvd_code stand_in_create(struct comm *comm, const struct member *member, struct hvd_handle **handle,
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
        code = status_set(status, HVD_OUT_OF_MEMORY, "out of memory for a batch while this rank has joined");
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

/* ---- batches ------------------------------------------------------------------------------------------- */

static void batch_done(struct collective *collective, const hvd_status *status)
{
    struct running_batch *running = collective->owner;
    struct comm *comm = running->comm;
    if (running->handles[0]->following) {
        running->handles[0]->following--;
        if (status->code)
            handle_fail(running->handles[0], status);
    } else {
        for (int i = 0; i < running->count; i++)
            handle_finish(running->handles[i], status);
        coordinator_batch_done(comm->coordinator, running->sequence);
        /* A place in flight has become free: the next flush may start what waited for it. */
        comm->active = true;
    }
    layout_free(running);
    if (status->code)
        progress_fault(comm->context, status);
}

static void describe_job(struct running_batch *running, const hvd_request *request, const struct batch *batch,
                         hvd_dtype dtype)
{
    struct collective *collective = &running->collective;
    collective->operation = request->operation;
    collective->reduction = request->reduction;
    collective->dtype = dtype;
    /* An identity stays what it is. Where there is a factor it is that of all members, or of none: see
     * runs_alone in decide.c. */
    bool stands_in = !batch->requests[0];
    collective->prescale = stands_in ? 1 : factor_of(request->prescale);
    collective->postscale = factor_of(request->postscale);
    collective->root = request->root;
    collective->rank = running->comm->rank;
    collective->size = running->comm->size;
    collective->topology = &running->comm->topology;
    collective->channel = batch->is_short ? CHANNEL_SHORT : CHANNEL_LONG;
    /* It shares no batch then. */
    collective->apart = batch->requests[0] && batch->requests[0]->apart;
    collective->choice = batch->choice;
    collective->own_rows = running->own_rows;
    collective->row_bytes = running->row_bytes;
    collective->gathered = layout_gathered;
    collective->phased = observed(running->comm->context) ? observe_phase : NULL;
    collective->done = batch_done;
    collective->owner = running;
}

/* The other ranks run the batch: the job can't go on. Stand-ins were made for the first `found` only. */
static void refuse_batch(struct comm *comm, const struct batch *batch, struct hvd_handle *const *handles,
                         int found, const hvd_status *cause)
{
    for (int i = 0; i < batch->count; i++) {
        if (batch->requests[i])
            handle_finish(batch->requests[i]->owner, cause);
        else if (i < found)
            handle_finish(handles[i], cause);
    }
    progress_fault(comm->context, cause);
}

static struct running_batch *lay_out(struct comm *comm, struct hvd_handle *const *handles,
                                     const struct batch *batch, hvd_dtype dtype, hvd_status *status)
{
    struct running_batch *running = layout_create(handles, batch->count, comm->size);
    if (!running) {
        status_set(status, HVD_OUT_OF_MEMORY, "rank %d is out of memory for a batch of %d requests",
                   comm->context->placement.rank, batch->count);
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
    if (comm->tuning)
        tuning_count(comm->tuning, running);
    /* Queued only: `done` is called later in this turn, or in another one, and frees it all. */
    backends_start(&comm->backends, &running->collective);
}

/* Bits of the types in one part of a request. What is only moved is moved as bytes, whatever it is. */
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

/* A collective for each type. */
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
        handles[0]->following += running->follows;
        collective_queue_push(laid_out, &running->collective);
        code = layout_fill(running, status);
    }
    return code;
}

/* The members of a batch have one type and one part each, except for a group, which is alone in it: then all
 * of its collectives start, or none. */
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

#define FEW 32 /* requests, for which a batch's handles are on the stack */

void batch_start(struct comm *comm, const struct batch *batch)
{
    hvd_status status;
    int found = 0;
    if (batch->result) {
        eager_finish(comm, batch);
        return;
    }
    size_t bytes = (size_t)batch->count * sizeof(struct hvd_handle *);
    struct hvd_handle *few[FEW], **handles = batch->count <= FEW ? few : pages_take(bytes);
    hvd_code code = handles ? HVD_OK : HVD_OUT_OF_MEMORY;
    if (code)
        status_set(&status, code, "rank %d is out of memory for a batch", comm->context->placement.rank);
    while (!code && (!found || found < batch->count)) { /* there is one at least */
        if (batch->requests[found])
            handles[found] = batch->requests[found]->owner;
        else /* it is here because it joined */
            code = stand_in_create(comm, &batch->members[found], &handles[found], &status);
        found += !code;
    }
    if (!code && operation_changes_sets(handles[0]->request.operation)) {
        /* It moves no bytes and is over at once. The one call back into a coordinator out of its own output;
         * it only lowers the count of running batches. */
        coordinator_batch_done(comm->coordinator, batch->sequence);
        membership_decided(comm->context, handles[0]);
    } else if (!code) {
        code = run(comm, handles, batch, &status);
    }
    if (code)
        refuse_batch(comm, batch, handles, found, &status);
    if (handles != few)
        pages_give(handles, bytes);
}
