/* handle.c - the life of one operation of this rank: the block that a handle is, its name, the events of its
 * streams, and how it ends. Threads are named in handle.h. */
#include "engine/handle.h"

#include "base/futex.h"
#include "base/status.h"
#include "base/thread.h"
#include "base/types.h"
#include "coordinate/name.h"
#include "engine/context.h"
#include "engine/observe.h"
#include "engine/recorder.h"
#include "engine/result.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- the block and its name -------------------------------------------------------------------------- */

/* Handle, name, ranges, tensors, events, shapes, splits and signature are in one block, in this order. */
struct handle_block {
    size_t ranges, tensors, events, shapes, splits, signature, total;
};

/* Checks the name, and measures it with the operation in front. */
static hvd_code measure_name(const hvd_request *request, size_t *length, hvd_status *status)
{
    const char *operation = operation_name(request->operation);
    size_t prefix = name_prefix_length(request->operation, request->grouped);
    size_t limit = REQUEST_NAME_LIMIT - 1 - prefix;
    size_t own = request->name ? strnlen(request->name, limit + 1) : 0;
    *length = prefix + own;
    if (own > limit)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s: the name %.40s... is longer than %zu bytes",
                          operation, request->name, limit);
    if (request->generated && (!request->name || name_is_counted(request->name)))
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: a generated name is missing, or is one that the engine counts, as noname.1",
                          operation);
    return HVD_OK;
}

/* Returns true if outputs may have other shapes than the inputs. */
static bool has_own_shapes(const hvd_request *request)
{
    return request->outputs && operation_makes_results(request->operation);
}

/* Returns how many events at most say when the tensors may be used. */
static size_t count_streams(const hvd_request *request, const struct memory_ops *memory)
{
    if (memory->host_access)
        return 0;
    return request->streams ? (size_t)request->count * (request->outputs ? 2 : 1) : 1;
}

static struct handle_block measure(const hvd_request *request, const struct memory_ops *memory, int size,
                                   size_t signature_length, size_t name_length)
{
    const size_t align = _Alignof(struct memory_range);
    size_t name = request->name ? name_length + 1 : REQUEST_NAME_LIMIT; /* comm_submit numbers it */
    struct handle_block block;
    size_t tensors = (size_t)request->count * (request->outputs ? 2 : 1);
    size_t extents = 0;
    for (int i = 0; i < request->count; i++)
        extents += (size_t)request->inputs[i].ndim;
    if (has_own_shapes(request))
        extents *= 2;
    block.ranges = (offsetof(struct hvd_handle, name) + name + align - 1) / align * align;
    block.tensors = block.ranges + tensors * sizeof(struct memory_range);
    block.events = block.tensors + tensors * sizeof(hvd_tensor);
    block.shapes = block.events + count_streams(request, memory) * sizeof(struct memory_event *);
    block.splits = block.shapes + extents * sizeof(int64_t);
    block.signature =
        block.splits +
        (operation_takes(request->operation, ARGUMENT_splits) ? (size_t)size * sizeof(int64_t) : 0);
    block.total = block.signature + signature_length;
    return block;
}

static void copy_tensors(struct hvd_handle *handle, const hvd_request *request,
                         const struct handle_block *block)
{
    char *base = (char *)handle;
    hvd_tensor *tensors = (hvd_tensor *)(base + block->tensors);
    int64_t *shape = (int64_t *)(base + block->shapes);
    for (int i = 0; i < request->count; i++) {
        size_t extents = (size_t)request->inputs[i].ndim;
        if (extents)
            memcpy(shape, request->inputs[i].shape, extents * sizeof *shape);
        tensors[i] = request->inputs[i];
        tensors[i].shape = shape;
        if (has_own_shapes(request)) {
            shape += extents; /* of the same number: signature_measure has checked them */
            memcpy(shape, request->outputs[i].shape, extents * sizeof *shape);
        }
        if (request->outputs) {
            tensors[request->count + i] = request->outputs[i];
            tensors[request->count + i].shape = shape;
        }
        shape += extents;
    }
    handle->request.inputs = tensors;
    handle->request.outputs = request->outputs ? tensors + request->count : NULL;
}

/* Checks the splits, which a signature leaves out since they differ by rank. */
static hvd_code check_splits(const hvd_request *request, int size, hvd_status *status)
{
    if (!operation_takes(request->operation, ARGUMENT_splits))
        return HVD_OK;
    const char *text = operation_name(request->operation);
    int64_t rows = request->inputs[0].shape[0], sum = 0;
    if (!request->splits && rows % size)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: %lld rows can't be divided evenly among %d ranks; pass splits", text,
                          (long long)rows, size);
    for (int rank = 0; request->splits && rank < size; rank++) {
        int64_t split = request->splits[rank];
        if (split < 0)
            return status_set(status, HVD_INVALID_ARGUMENT, "%s: the split for rank %d is %lld", text, rank,
                              (long long)split);
        if (split > rows - sum)
            return status_set(status, HVD_INVALID_ARGUMENT,
                              "%s: the tensor has %lld rows; the splits for rank 0 to %d exceed them", text,
                              (long long)rows, rank);
        sum += split;
    }
    return HVD_OK;
}

static void copy_splits(struct hvd_handle *handle, const hvd_request *request, int64_t *splits, int size)
{
    if (!operation_takes(request->operation, ARGUMENT_splits))
        return;
    for (int rank = 0; rank < size; rank++)
        splits[rank] = request->splits ? request->splits[rank] : request->inputs[0].shape[0] / size;
    handle->request.splits = splits;
}

/* ---- blocks and names ------------------------------------------------------------------------------- */

static size_t key_length(const struct hvd_handle *handle)
{
    return sizeof handle->process_set + handle->name_length;
}

/* Called under the lock. A handle that is done keeps its place until it is released or another one claims it,
 * so that finishing operations needs no lock. */
static hvd_code claim_name(struct hvd_context *context, struct hvd_handle *handle, hvd_status *status)
{
    void **place = map_place(&context->names, &handle->process_set, key_length(handle), handle);
    if (!place)
        return status_no_memory(status);
    struct hvd_handle *other = *place;
    if (other != handle && !handle_is_done(other))
        return status_set(status, HVD_DUPLICATE_NAME,
                          "%s is in flight on rank %d; wait for it, or give the second one another name",
                          handle->name, context->placement.rank);
    other->claims = false;
    *place = handle;
    handle->claims = true;
    return HVD_OK;
}

static const double *keep_factor(double *kept, const double *given)
{
    if (given)
        *kept = *given;
    return given ? kept : NULL;
}

static hvd_code open_block(struct hvd_context *context, const hvd_request *request, size_t bytes,
                           size_t name_length, bool claims, struct hvd_handle **handle, hvd_status *status)
{
    hvd_code code = HVD_OK;
    pthread_mutex_lock(&context->handles_lock);
    struct hvd_handle *opened = pool_alloc(&context->pool, bytes);
    if (opened) {
        *opened = (struct hvd_handle){.context = context,
                                      .bytes = (uint32_t)bytes,
                                      .request = *request,
                                      .process_set = request->process_set};
        opened->request.prescale = keep_factor(&opened->prescale, request->prescale);
        opened->request.postscale = keep_factor(&opened->postscale, request->postscale);
        opened->name_length = (uint32_t)name_length;
        opened->name[0] = '\0'; /* comm_submit numbers a request without a name */
        if (request->name)
            name_write(request->operation, request->grouped, request->name,
                       name_length - name_prefix_length(request->operation, request->grouped), opened->name);
        code = claims && request->name ? claim_name(context, opened, status) : HVD_OK;
    }
    if (code)
        pool_free(&context->pool, opened, bytes);
    pthread_mutex_unlock(&context->handles_lock);
    *handle = opened;
    return opened ? code : status_no_memory(status);
}

/* The lock may be held by a thread that a forked child does not have; nor does the child submit. */
static void close_block(struct hvd_context *context, struct hvd_handle *handle)
{
    if (atomic_load_explicit(&context->forked, memory_order_relaxed))
        return;
    pthread_mutex_lock(&context->handles_lock);
    if (handle->claims)
        map_remove(&context->names, &handle->process_set, key_length(handle));
    pool_free(&context->pool, handle, handle->bytes);
    pthread_mutex_unlock(&context->handles_lock);
}

/* ---- the device ------------------------------------------------------------------------------------- */

/* Called after signature_measure: all tensors are on one type of device. */
static hvd_code find_memory(const hvd_request *request, const struct memory_ops **memory, hvd_status *status)
{
    hvd_status reason;
    if (!memory_open(request->count ? request->inputs[0].device_type : HVD_CPU, memory, &reason))
        return HVD_OK;
    return status_set(status, HVD_UNSUPPORTED, "%s: tensor 0 is on %.700s; copy it to the CPU",
                      operation_name(request->operation), reason.text);
}

static const hvd_tensor *tensor_at(const hvd_request *request, size_t index)
{
    size_t count = (size_t)request->count;
    return index < count ? &request->inputs[index] : &request->outputs[index - count];
}

/* Returns true if an earlier tensor has the same stream. */
static bool is_recorded(const hvd_request *request, size_t index)
{
    size_t earlier = 0;
    while (earlier < index &&
           (request->streams[earlier] != request->streams[index] ||
            tensor_at(request, earlier)->device_id != tensor_at(request, index)->device_id))
        earlier++;
    return earlier < index;
}

static void release_ready(struct hvd_handle *handle)
{
    while (handle->ready_count)
        handle->memory->event_release(handle->ready[--handle->ready_count]);
}

/* Records an event for each stream whose work the tensors need. */
static hvd_code record_ready(struct hvd_handle *handle, const hvd_request *request, hvd_status *status)
{
    hvd_status reason;
    size_t count = count_streams(request, handle->memory);
    for (size_t i = 0; i < count; i++) {
        if (request->streams && is_recorded(request, i))
            continue;
        void *stream = request->streams ? request->streams[i] : request->stream;
        hvd_code code = handle->memory->event_record(tensor_at(request, i)->device_id, stream,
                                                     &handle->ready[handle->ready_count], &reason);
        if (code) {
            release_ready(handle);
            return status_set(status, code, "%s: %.850s", operation_name(request->operation), reason.text);
        }
        handle->ready_count++;
    }
    if (count)
        context_use_device(handle->context, tensor_at(request, 0)->device_id);
    return HVD_OK;
}

/* ---- creation --------------------------------------------------------------------------------------- */

hvd_code handle_create(struct hvd_context *context, const hvd_request *request, int size, bool claims,
                       struct hvd_handle **handle, hvd_status *status)
{
    const struct memory_ops *memory = NULL;
    struct parts parts = {.count = 1};
    uint32_t signature_length;
    size_t name_length;
    TRY(signature_measure(request, &signature_length, status));
    TRY(check_splits(request, size, status));
    TRY(measure_name(request, &name_length, status));
    TRY(find_memory(request, &memory, status));
    if (request->count > 1) /* a call takes 15 instructions */
        TRY(parts_find(request, &parts, status));
    struct handle_block block = measure(request, memory, size, signature_length, name_length);
    struct hvd_handle *created;
    hvd_code code = open_block(context, request, block.total, name_length, claims, &created, status);
    if (code)
        goto free_parts;
    char *base = (char *)created;
    created->memory = memory;
    created->ready = (struct memory_event **)(base + block.events);
    code = record_ready(created, request, status);
    if (code)
        goto close_block;
    atomic_init(&created->references, 2);
    atomic_init(&created->calls, request->done != NULL);
    created->pending = (struct pending){
        .name = name_on_wire(request->operation, request->grouped,
                             !request->name       ? NAME_COUNTED
                             : request->generated ? NAME_GENERATED
                                                  : NAME_GIVEN,
                             created->name),
        .signature = signature_encode(request, parts.of, (uint8_t *)base + block.signature, signature_length),
        .owner = created};
    created->parts = parts;
    created->request.name = request->name ? created->name : NULL;
    created->footprint.ranges = (struct memory_range *)(base + block.ranges);
    copy_tensors(created, request, &block);
    copy_splits(created, request, (int64_t *)(base + block.splits), size);
    context_retain(context);
    *handle = created;
    return HVD_OK;
close_block:
    close_block(context, created);
free_parts:
    parts_free(&parts);
    return code;
}

/* The outcome of a failed operation if there is no memory for its text. */
static hvd_status no_memory = {.code = HVD_OUT_OF_MEMORY,
                               .text = "the operation failed, and there is no memory to keep the reason"};

void handle_release(struct hvd_handle *handle)
{
    if (atomic_fetch_sub_explicit(&handle->references, 1, memory_order_acq_rel) > 1)
        return;
    struct hvd_context *context = handle->context;
    for (int i = 0; handle->results && i < handle->result_count; i++)
        result_free(handle->results[i].data);
    free(handle->results);
    release_ready(handle);
    if (handle->own_data)
        handle->memory->release(handle->own_data);
    if (handle->failure != &no_memory)
        free(handle->failure);
    if (handle->parts.of)
        parts_free(&handle->parts);
    close_block(context, handle);
    context_release(context);
}

void handle_release_held(struct hvd_handle *handle)
{
    assert(context_is_held(handle->context));
    struct hvd_context *context = handle->context;
    struct hvd_handle *oldest = handle_reverse(handle->held_back);
    handle->held_back = NULL;
    for (struct hvd_handle *held; (held = oldest);) {
        oldest = held->next;
        held->next = context->released;
        context->released = held;
    }
}

bool handle_claim_call(struct hvd_handle *handle)
{
    return atomic_load(&handle->calls) && atomic_exchange(&handle->calls, false);
}

void handle_fail(struct hvd_handle *handle, const hvd_status *failure)
{
    if (handle->failure)
        return;
    handle->failure = malloc(sizeof *handle->failure);
    if (handle->failure)
        status_copy(handle->failure, failure);
    else
        handle->failure = &no_memory;
}

void handle_finish(struct hvd_handle *handle, const hvd_status *status)
{
    assert(context_is_held(handle->context));
    if (status->code)
        handle_fail(handle, status);
    observe_finished(handle, handle->failure ? handle->failure : status);
    recorder_finished(handle);
    if (handle->counters)
        counter_add(handle->failure ? &handle->counters->failed : &handle->counters->succeeded, 1);
    struct hvd_context *context = handle->context;
    overlaps_leave(&context->overlaps, &handle->footprint);
    handle_release_held(handle);
    /* Sequentially consistent, as are the loads in hvd_on_done: one of the sides sees the other's store. */
    if (atomic_exchange(&handle->state, HANDLE_DONE) == HANDLE_AWAITED)
        futex_wake_all(&handle->state);
    if (!handle_claim_call(handle)) {
        handle_release(handle);
        return;
    }
    handle->next = context->finished_calls;
    context->finished_calls = handle;
}

struct hvd_handle *handle_reverse(struct hvd_handle *newest)
{
    struct hvd_handle *oldest = NULL;
    while (newest) {
        struct hvd_handle *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}

hvd_code handle_outcome(struct hvd_handle *handle, hvd_status *status)
{
    return handle->failure ? status_copy(status, handle->failure) : status_ok(status);
}

const char *handle_name(const struct hvd_handle *handle)
{
    return handle->request.name ? handle->name : operation_name(handle->request.operation);
}
