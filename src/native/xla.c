/* xla.c - see xla_ffi.h. A call of the handler is a request for each element type among its tensors; the last
 * one that ends completes XLA's future. */
#include "native/xla_ffi.h"

#include "native/entry.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_MOST = XLA_TYPES, NAME_MOST = 1100 };

struct call;

/* A request, on the tensors of one type: first ... first + count - 1 of the call's. */
struct part {
    struct call *call;
    hvd_handle *handle;
    int32_t first, count;
};

struct call {
    const struct xla_api *api;
    struct xla_future *future;
    atomic_int pending; /* parts that have not ended, and 1 until all are submitted */
    atomic_bool failed;
    hvd_status failure; /* of the first that failed */
    struct part parts[PARTS_MOST];
    int part_count;
    int32_t count;
    hvd_tensor *inputs, *outputs; /* [count], by type; shapes are valid in the handler's call only */
    size_t *bytes;                /* [count], of the outputs */
};

/* ---- XLA's words ------------------------------------------------------------------------------------ */

static int dtype_of(int type)
{
    static const int dtypes[XLA_TYPES] = {
        [XLA_PRED] = HVD_BOOL + 1,     [XLA_S8] = HVD_INT8 + 1,       [XLA_S16] = HVD_INT16 + 1,
        [XLA_S32] = HVD_INT32 + 1,     [XLA_S64] = HVD_INT64 + 1,     [XLA_U8] = HVD_UINT8 + 1,
        [XLA_U16] = HVD_UINT16 + 1,    [XLA_U32] = HVD_UINT32 + 1,    [XLA_U64] = HVD_UINT64 + 1,
        [XLA_F16] = HVD_FLOAT16 + 1,   [XLA_F32] = HVD_FLOAT32 + 1,   [XLA_F64] = HVD_FLOAT64 + 1,
        [XLA_C64] = HVD_COMPLEX64 + 1, [XLA_BF16] = HVD_BFLOAT16 + 1, [XLA_C128] = HVD_COMPLEX128 + 1};
    return type > 0 && type < XLA_TYPES ? dtypes[type] - 1 : -1;
}

/* The numbers of absl's status codes. */
static int error_code_of(hvd_code code)
{
    switch (code) {
    case HVD_INVALID_ARGUMENT:
        return 3;
    case HVD_TIMED_OUT:
        return 4;
    case HVD_OUT_OF_MEMORY:
        return 8;
    case HVD_DUPLICATE_NAME:
    case HVD_MISMATCH:
        return 9; /* failed precondition */
    case HVD_PEER_LOST:
    case HVD_SHUT_DOWN:
        return 10; /* aborted */
    case HVD_UNSUPPORTED:
        return 12;
    default:
        return 13; /* internal */
    }
}

static struct xla_error *error_of(const struct xla_api *api, const hvd_status *status)
{
    struct xla_error_args args = {.head.struct_size =
                                      offsetof(struct xla_error_args, code) + sizeof args.code,
                                  .message = status->text,
                                  .code = error_code_of(status->code)};
    return api->error_create(&args);
}

static hvd_code fail(hvd_status *status, hvd_code code, const char *text)
{
    status->code = code;
    snprintf(status->text, sizeof status->text, "%s", text);
    return code;
}

/* The runtime refuses other versions than those it knows, and with them all of its back end: so this one
 * reports the runtime's own. */
static bool answer_registration(const struct xla_frame *frame)
{
    for (struct xla_extension *e = frame->head.extensions; e; e = e->next) {
        if (e->kind != XLA_METADATA_EXTENSION)
            continue;
        struct xla_metadata *metadata = ((struct xla_metadata_extension *)e)->metadata;
        metadata->version.major = frame->api ? frame->api->version.major : 0;
        metadata->version.minor = frame->api ? frame->api->version.minor : 1;
        metadata->traits = 0;
        return true;
    }
    return false;
}

/* ---- attributes ------------------------------------------------------------------------------------- */

static const void *find_attribute(const struct xla_attributes *attributes, const char *name, int kind)
{
    for (int64_t i = 0; i < attributes->count; i++) {
        const struct xla_text *text = attributes->names[i];
        if (text->length == strlen(name) && !memcmp(text->start, name, text->length))
            return attributes->kinds[i] == kind ? attributes->values[i] : NULL;
    }
    return NULL;
}

static bool read_integer(const struct xla_attributes *attributes, const char *name, int32_t *value)
{
    const struct xla_scalar *scalar = find_attribute(attributes, name, XLA_SCALAR);
    if (!scalar || scalar->type != XLA_S64)
        return false;
    *value = (int32_t) * (const int64_t *)scalar->value;
    return true;
}

static bool read_factor(const struct xla_attributes *attributes, const char *name, double *value)
{
    const struct xla_scalar *scalar = find_attribute(attributes, name, XLA_SCALAR);
    if (!scalar || scalar->type != XLA_F64)
        return false;
    *value = *(const double *)scalar->value;
    return true;
}

static hvd_code read_request(const struct xla_attributes *attributes, hvd_request *request, char *name,
                             hvd_status *status)
{
    int32_t operation = 0, reduction = 0;
    const struct xla_text *text = find_attribute(attributes, "name", XLA_STRING);
    *request = (hvd_request){.struct_size = sizeof *request, .name = name};
    if (!text || !read_integer(attributes, "operation", &operation) ||
        !read_integer(attributes, "reduction", &reduction) ||
        !read_integer(attributes, "root", &request->root) ||
        !read_integer(attributes, "process_set", &request->process_set) ||
        !read_integer(attributes, "grouped", &request->grouped) ||
        !read_factor(attributes, "prescale", &request->prescale) ||
        !read_factor(attributes, "postscale", &request->postscale))
        return fail(status, HVD_INVALID_ARGUMENT,
                    "this program was compiled by another version of Horovod; compile it again");
    request->operation = (hvd_operation)operation;
    request->reduction = (hvd_reduction)reduction;
    /* One too long is cut where the engine still refuses it. */
    snprintf(name, NAME_MOST, "%.*s", (int)text->length, text->start);
    return HVD_OK;
}

/* ---- the end of a call ------------------------------------------------------------------------------ */

static void complete(struct call *call)
{
    const struct xla_api *api = call->api;
    struct xla_future *future = call->future;
    struct xla_error *error = atomic_load(&call->failed) ? error_of(api, &call->failure) : NULL;
    free(call);
    entry_callback_begin();
    if (error)
        api->future_set_error(&(struct xla_future_error_args){
            .head.struct_size = sizeof(struct xla_future_error_args), .future = future, .error = error});
    else
        api->future_set_available(
            &(struct xla_future_args){.head.struct_size = sizeof(struct xla_future_args), .future = future});
    entry_callback_end();
}

static void leave(struct call *call)
{
    if (atomic_fetch_sub(&call->pending, 1) == 1)
        complete(call);
}

static void note_failure(struct call *call, const hvd_status *status)
{
    if (!atomic_exchange(&call->failed, true))
        call->failure = *status;
}

/* Where the results are the engine's. */
static hvd_code copy_results(const struct part *part, hvd_status *status)
{
    for (int32_t i = 0; i < part->count; i++) {
        hvd_tensor result;
        int32_t place = part->first + i;
        hvd_code code = hvd_output(part->handle, i, &result, status);
        if (code)
            return code;
        size_t bytes = hvd_dtype_size(result.dtype);
        for (int d = 0; d < result.ndim; d++)
            bytes *= (size_t)result.shape[d];
        if (bytes != part->call->bytes[place])
            return fail(
                status, HVD_MISMATCH,
                "allgather: the ranks' arrays have different numbers of rows; under JAX, whose shapes "
                "are fixed when a program is compiled, all must have the same");
        if (bytes)
            memcpy(part->call->outputs[place].data, result.data, bytes);
    }
    return HVD_OK;
}

static void part_done(void *argument, const hvd_status *status)
{
    struct part *part = argument;
    if (status->code)
        note_failure(part->call, status);
    leave(part->call);
}

static void part_done_with_results(void *argument, const hvd_status *status)
{
    struct part *part = argument;
    hvd_status own = *status;
    if (own.code || copy_results(part, &own))
        note_failure(part->call, &own);
    leave(part->call);
}

/* ---- the beginning ---------------------------------------------------------------------------------- */

static hvd_tensor tensor_of(const struct xla_buffer *buffer)
{
    return (hvd_tensor){.data = buffer->data,
                        .shape = buffer->dims,
                        .ndim = (int32_t)buffer->rank,
                        .dtype = (hvd_dtype)dtype_of(buffer->type),
                        .device_type = HVD_CPU};
}

static size_t bytes_of(const hvd_tensor *tensor)
{
    size_t bytes = hvd_dtype_size(tensor->dtype);
    for (int d = 0; d < tensor->ndim; d++)
        bytes *= (size_t)tensor->shape[d];
    return bytes;
}

/* The tensors of one type become a part. */
static void add_part(struct call *call, const struct xla_frame *frame, int type)
{
    struct part *part = &call->parts[call->part_count];
    *part = (struct part){.call = call, .first = call->count};
    for (int64_t i = 0; i < frame->inputs.count; i++) {
        if (frame->inputs.buffers[i]->type != type)
            continue;
        call->inputs[call->count] = tensor_of(frame->inputs.buffers[i]);
        call->outputs[call->count] = tensor_of(frame->outputs.buffers[i]);
        call->bytes[call->count] = bytes_of(&call->outputs[call->count]);
        call->count++;
    }
    part->count = call->count - part->first;
    call->part_count += part->count > 0;
}

/* NULL with a status. */
static struct call *create_call(const struct xla_frame *frame, hvd_operation operation, hvd_status *status)
{
    size_t count = (size_t)frame->inputs.count;
    for (size_t i = 0; i < count; i++) {
        if (dtype_of(frame->inputs.buffers[i]->type) < 0) {
            fail(status, HVD_UNSUPPORTED, "an array has elements of a type that Horovod can't send");
            return NULL;
        }
    }
    struct call *call = calloc(1, sizeof *call + count * (2 * sizeof(hvd_tensor) + sizeof(size_t)));
    if (!call) {
        fail(status, HVD_OUT_OF_MEMORY, "out of memory for an operation of XLA");
        return NULL;
    }
    call->api = frame->api;
    call->inputs = (hvd_tensor *)(call + 1);
    call->outputs = call->inputs + count;
    call->bytes = (size_t *)(call->outputs + count);
    for (int type = 0; type < XLA_TYPES; type++) /* in one order on all ranks */
        add_part(call, frame, type);
    if (operation == HVD_BARRIER) { /* its outputs are its inputs */
        call->parts[0] = (struct part){.call = call};
        call->part_count = 1;
    }
    return call;
}

/* Submits a part, or notes why that failed. */
static void submit_part(hvd_context *context, struct part *part, const hvd_request *request)
{
    struct call *call = part->call;
    hvd_request own = *request;
    hvd_status status;
    char name[NAME_MOST + 16];
    bool engine_writes = request->operation == HVD_ALLREDUCE || request->operation == HVD_BROADCAST ||
                         request->operation == HVD_BARRIER;
    own.name = name;
    own.count = part->count;
    own.inputs = call->inputs + part->first;
    own.outputs = engine_writes && own.count ? call->outputs + part->first : NULL;
    own.waits = entry_may_help();
    own.done = engine_writes ? part_done : part_done_with_results;
    own.done_argument = part;
    /* Names of groups of several types differ by them. */
    snprintf(name, sizeof name, "%s%s%s", request->name, call->part_count > 1 ? "." : "",
             call->part_count > 1 ? hvd_dtype_name(own.inputs->dtype) : "");
    atomic_fetch_add(&call->pending, 1);
    if (hvd_submit(context, &own, &part->handle, &status)) {
        part->handle = NULL;
        note_failure(call, &status);
        leave(call);
    }
}

/* The call may be gone when this returns. */
static void start(hvd_context *context, struct call *call, const hvd_request *request)
{
    hvd_handle *handles[PARTS_MOST] = {NULL};
    int count = call->part_count;
    atomic_store(&call->pending, 1);
    for (int i = 0; i < count; i++)
        submit_part(context, &call->parts[i], request);
    for (int i = 0; i < count; i++)
        handles[i] = call->parts[i].handle;
    leave(call);
    int last = count - 1; /* mostly ends last */
    while (last >= 0 && !handles[last])
        last--;
    if (last >= 0)
        entry_help(handles[last]);
    for (int i = 0; i < count; i++)
        hvd_release(handles[i]);
}

static struct xla_error *run(struct xla_frame *frame, hvd_context *context, const hvd_request *request)
{
    hvd_status status;
    struct xla_future_args args = {.head.struct_size = XLA_FUTURE_CREATE_SIZE};
    struct call *call = create_call(frame, request->operation, &status);
    if (!call)
        return error_of(frame->api, &status);
    struct xla_error *error = frame->api->future_create(&args);
    if (error) {
        free(call);
        return error;
    }
    call->future = frame->future = args.future;
    start(context, call, request);
    return NULL;
}

struct xla_error *xla_handler(struct xla_frame *frame)
{
    hvd_status status;
    hvd_request request;
    char name[NAME_MOST];
    if (answer_registration(frame) || frame->stage != XLA_EXECUTE)
        return NULL;
    if (frame->api->head.struct_size < sizeof *frame->api) { /* futures lie elsewhere */
        fail(&status, HVD_UNSUPPORTED, "this jaxlib is too old; horovod.jax needs 0.6 or newer");
        return error_of(frame->api, &status);
    }
    if (read_request(&frame->attributes, &request, name, &status))
        return error_of(frame->api, &status);
    hvd_context *context = entry_acquire(&status);
    if (!context)
        return error_of(frame->api, &status);
    struct xla_error *error = run(frame, context, &request);
    entry_release();
    return error;
}
