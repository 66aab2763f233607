/* xla.c - XLA's handler of all collectives: each call is one request, whose end completes XLA's future. The
 * handler runs on any thread of XLA, completion on any thread of the engine. A call belongs to the engine
 * from the submission to `call_done`, which frees it. */
#include "native/xla.h"

#include "native/dtype.h"
#include "native/entry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MOST = 1100 };

struct call {
    const struct xla_api *api;
    struct xla_future *future;
    hvd_context *context;
    char step[]; /* the name under which it reports a step of training; "": it reports none */
};

/* ---- XLA's errors ----------------------------------------------------------------------------------- */

static struct xla_error *error_of(const struct xla_api *api, const hvd_status *status)
{
    struct xla_error_args args = {.head.struct_size =
                                      offsetof(struct xla_error_args, code) + sizeof args.code,
                                  .message = status->text,
                                  .code = entry_absl_code(status->code)};
    return api->error_create(&args);
}

static hvd_code fail(hvd_status *status, hvd_code code, const char *text)
{
    status->code = code;
    snprintf(status->text, sizeof status->text, "%s", text);
    return code;
}

/* Answers the call that registers the handler. The runtime refuses versions that it does not know, and with
 * them its whole back end, so the handler reports the runtime's own version. */
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

static bool read_factor(const struct xla_attributes *attributes, const char *name, const double **factor)
{
    const struct xla_scalar *scalar = find_attribute(attributes, name, XLA_SCALAR);
    if (!scalar || scalar->type != XLA_F64)
        return false;
    *factor = scalar->value;
    return true;
}

/* `step`: not 0 in the one request of an optimizer's update that reports it. */
static hvd_code read_request(const struct xla_attributes *attributes, hvd_request *request, char *name,
                             int32_t *step, hvd_status *status)
{
    int32_t operation = 0, reduction = 0;
    const struct xla_text *text = find_attribute(attributes, "name", XLA_STRING);
    *request = (hvd_request){.struct_size = sizeof *request, .name = name};
    if (!text || !read_integer(attributes, "operation", &operation) ||
        !read_integer(attributes, "reduction", &reduction) ||
        !read_integer(attributes, "root", &request->root) ||
        !read_integer(attributes, "process_set", &request->process_set) ||
        !read_integer(attributes, "grouped", &request->grouped) ||
        !read_integer(attributes, "generated", &request->generated) ||
        !read_integer(attributes, "step", step) || !read_factor(attributes, "prescale", &request->prescale) ||
        !read_factor(attributes, "postscale", &request->postscale))
        return fail(status, HVD_INVALID_ARGUMENT,
                    "this program was compiled by another version of Horovod; compile it again");
    request->operation = (hvd_operation)operation;
    request->reduction = (hvd_reduction)reduction;
    /* A name that is too long is cut to a length that the engine still refuses. */
    snprintf(name, NAME_MOST, "%.*s", (int)text->length, text->start);
    return HVD_OK;
}

/* ---- a call ------------------------------------------------------------------------------------------- */

/* hvd_done_fn: completes the future. The step is reported before, as the next one begins after it. */
static void call_done(void *argument, const hvd_status *status)
{
    struct call call = *(struct call *)argument;
    const char *step = ((struct call *)argument)->step;
    if (*step && !status->code)
        hvd_optimizer_step(call.context, step, NULL);
    free(argument);
    entry_callback_begin();
    if (status->code)
        call.api->future_set_error(
            &(struct xla_future_error_args){.head.struct_size = sizeof(struct xla_future_error_args),
                                            .future = call.future,
                                            .error = error_of(call.api, status)});
    else
        call.api->future_set_available(&(struct xla_future_args){
            .head.struct_size = sizeof(struct xla_future_args), .future = call.future});
    entry_callback_end();
}

static hvd_tensor tensor_of(const struct xla_buffer *buffer)
{
    return (hvd_tensor){.data = buffer->data,
                        .shape = buffer->dims,
                        .ndim = (int32_t)buffer->rank,
                        .dtype = dtype_of(FRAMEWORK_XLA, buffer->type),
                        .device_type = HVD_CPU};
}

/* `tensors` has room for inputs and outputs. */
static void set_tensors(hvd_request *request, hvd_tensor *tensors, const struct xla_frame *frame)
{
    int64_t count = frame->inputs.count;
    for (int64_t i = 0; i < count; i++) {
        tensors[i] = tensor_of(frame->inputs.buffers[i]);
        tensors[count + i] = tensor_of(frame->outputs.buffers[i]);
    }
    request->count = (int32_t)count;
    request->inputs = tensors;
    request->outputs = tensors + count;
}

/* Gives the call to the engine, which may have finished and freed it when this returns. */
static void submit(hvd_context *context, hvd_request *request, struct call *call)
{
    hvd_handle *handle;
    hvd_status status;
    request->waits = entry_may_help();
    request->done = call_done;
    request->done_argument = call;
    if (hvd_submit(context, request, &handle, &status)) {
        call_done(call, &status);
        return;
    }
    entry_help(handle);
    hvd_release(handle);
}

/* `step`: the name under which it reports a step of training, or "". */
static struct xla_error *run(struct xla_frame *frame, hvd_context *context, hvd_request *request,
                             const char *step)
{
    hvd_status status;
    struct xla_future_args args = {.head.struct_size = XLA_FUTURE_CREATE_SIZE};
    hvd_tensor *tensors = calloc(2 * (size_t)frame->inputs.count + 1, sizeof *tensors);
    size_t length = strlen(step) + 1;
    struct call *call = malloc(sizeof *call + length);
    if (!tensors || !call) {
        free(tensors);
        free(call);
        fail(&status, HVD_OUT_OF_MEMORY, "out of memory for an operation of XLA");
        return error_of(frame->api, &status);
    }
    struct xla_error *error = frame->api->future_create(&args);
    if (error) {
        free(call);
    } else {
        if (request->operation != HVD_BARRIER) /* its outputs are its inputs */
            set_tensors(request, tensors, frame);
        *call = (struct call){frame->api, args.future, context};
        memcpy(call->step, step, length);
        frame->future = args.future;
        submit(context, request, call);
    }
    free(tensors);
    return error;
}

struct xla_error *xla_handler(struct xla_frame *frame)
{
    hvd_status status;
    hvd_request request;
    char name[NAME_MOST];
    int32_t step;
    if (answer_registration(frame) || frame->stage != XLA_EXECUTE)
        return NULL;
    if (frame->api->head.struct_size < sizeof *frame->api) { /* futures have other offsets */
        fail(&status, HVD_UNSUPPORTED, "this jaxlib is too old; horovod.jax needs 0.6 or newer");
        return error_of(frame->api, &status);
    }
    if (read_request(&frame->attributes, &request, name, &step, &status))
        return error_of(frame->api, &status);
    hvd_context *context = entry_acquire(&status);
    if (!context)
        return error_of(frame->api, &status);
    struct xla_error *error = run(frame, context, &request, step ? name : "");
    entry_release();
    return error;
}
