/* collectives.c - the kernels of the collectives. A kernel runs on any thread of TensorFlow: it submits its
 * inputs, makes progress for at most 50 microseconds, and returns; the engine's `done` function sets the
 * outputs, on any thread. A call is freed by the last of its two holders. */
#include "tensorflow/collectives.h"

#include "native/dtype.h"
#include "tensorflow/completion.h"
#include "tensorflow/kernel.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MOST = 1100 }; /* a longer name is cut to a length that the engine still refuses */

/* A kernel: one node of a graph, or shared by eager calls with the same attributes. */
struct node {
    hvd_request request; /* without tensors */
    double factors[2];   /* before and after the reduction */
    bool splits_given;   /* alltoall: false: the same number of rows to all ranks */
    bool step;           /* it reports an update of its optimizer */
    char name[NAME_MOST];
};

/* One run of a kernel. The inputs belong to TensorFlow's context, which lasts until the run is completed. */
struct call {
    atomic_int holders; /* the submitting thread and the engine */
    TF_OpKernelContext *context;
    struct completion completion;
    sem_t *over; /* posted at the end, instead of a completion; or NULL */
    hvd_handle *handle;
    hvd_context *job;
    const char *step; /* the name under which it reports a step of training, or NULL */
    hvd_operation operation;
    int32_t count;
    int64_t *splits;
    hvd_tensor *outputs; /* [count], or NULL if the engine makes them */
    hvd_tensor *inputs;  /* [count] */
    int64_t (*shapes)[HVD_MAX_DIMENSIONS];
};

/* ---- errors -------------------------------------------------------------------------------------------- */

static hvd_code fail(hvd_status *status, hvd_code code, const char *text)
{
    status->code = code;
    snprintf(status->text, sizeof status->text, "%s", text);
    return code;
}

/* ---- outputs ------------------------------------------------------------------------------------------ */

static void free_result(void *data, size_t bytes, void *unused)
{
    (void)bytes;
    (void)unused;
    engine->free(data);
}

/* Makes a result of the engine an output of TensorFlow, without a copy. */
static TF_Tensor *adopt(TF_OpKernelContext *context, int index, const hvd_tensor *result, TF_Status *status)
{
    size_t bytes = engine->dtype_size(result->dtype);
    for (int i = 0; i < result->ndim; i++)
        bytes *= (size_t)result->shape[i];
    int type = dtype_number(FRAMEWORK_TENSORFLOW, result->dtype);
    if (!bytes) {
        TF_Tensor *tensor = tf.AllocateOutput(context, index, type, result->shape, result->ndim, 0, status);
        engine->free(result->data);
        return tensor;
    }
    TF_Tensor *tensor =
        tf.NewTensor(type, result->shape, result->ndim, result->data, bytes, free_result, NULL);
    tf.SetOutput(context, index, tensor, status);
    return tensor;
}

static hvd_code set_last(struct call *call, TF_Status *failure, hvd_status *status)
{
    int32_t last;
    TF_Tensor *tensor = tf.AllocateOutput(call->context, 0, TF_INT32, NULL, 0, sizeof last, failure);
    hvd_code code = engine->joined_last(call->handle, &last, status);
    if (tensor && !code)
        memcpy(tf.TensorData(tensor), &last, sizeof last);
    tf.DeleteTensor(tensor);
    return code;
}

/* Sets the outputs that the engine has made. */
static hvd_code set_outputs(struct call *call, hvd_status *status)
{
    TF_Status *failure = tf.NewStatus();
    int count = call->operation == HVD_ALLTOALL ? 2 : call->outputs ? 0 : call->count;
    hvd_code code = call->operation == HVD_JOIN ? set_last(call, failure, status) : HVD_OK;
    for (int i = 0; !code && !tf.GetCode(failure) && i < count; i++) {
        hvd_tensor result;
        code = engine->output_take(call->handle, i, &result, status);
        if (!code)
            tf.DeleteTensor(adopt(call->context, i, &result, failure));
    }
    if (!code && tf.GetCode(failure))
        code = fail(status, HVD_SYSTEM, tf.Message(failure));
    tf.DeleteStatus(failure);
    return code;
}

/* ---- the end ------------------------------------------------------------------------------------------ */

static void release(struct call *call)
{
    if (atomic_fetch_sub(&call->holders, 1) > 1)
        return;
    engine->handle_release(call->handle);
    free(call);
}

/* The hvd_done_fn of a call: sets outputs or the error, and completes the kernel. */
static void finish(void *argument, const hvd_status *outcome)
{
    struct call *call = argument;
    struct completion completion = call->completion;
    sem_t *over = call->over;
    hvd_status status = {.code = outcome->code};
    if (outcome->code || set_outputs(call, &status))
        kernel_fail(call->context, outcome->code ? outcome : &status);
    else if (call->step) /* before the next one can begin */
        engine->optimizer_step(call->job, call->step, NULL);
    release(call);
    if (over) {
        sem_post(over);
        return;
    }
    engine->callback_begin();
    completion_run(&completion);
    engine->callback_end();
}

/* ---- submission --------------------------------------------------------------------------------------- */

static struct call *make_call(const struct node *node, TF_OpKernelContext *context)
{
    size_t count = node->request.operation == HVD_JOIN       ? 0
                   : node->request.operation == HVD_ALLTOALL ? 1
                                                             : (size_t)tf.NumInputs(context) - 1;
    struct call *call;
    char *memory = calloc(1, sizeof *call + count * (2 * sizeof *call->inputs + sizeof *call->shapes));
    if (!memory)
        return NULL;
    call = (struct call *)memory;
    call->holders = 2;
    call->context = context;
    call->operation = node->request.operation;
    call->count = (int32_t)count;
    call->inputs = (hvd_tensor *)(memory + sizeof *call);
    if (call->operation == HVD_ALLREDUCE || call->operation == HVD_BROADCAST)
        call->outputs = call->inputs + count;
    call->shapes = (int64_t(*)[HVD_MAX_DIMENSIONS])(call->inputs + 2 * count);
    return call;
}

/* Reads an input. The reference from GetInput is released at once: with it no input's memory could become an
 * output's. */
static void read_input(struct call *call, int index, TF_Status *failure)
{
    TF_Tensor *tensor = NULL;
    tf.GetInput(call->context, index, &tensor, failure);
    if (tf.GetCode(failure))
        return;
    int ndim = tf.NumDims(tensor);
    for (int i = 0; i < ndim && i < HVD_MAX_DIMENSIONS; i++)
        call->shapes[index][i] = tf.Dim(tensor, i);
    call->inputs[index] = (hvd_tensor){.data = tf.TensorData(tensor),
                                       .shape = call->shapes[index],
                                       .ndim = ndim,
                                       .dtype = dtype_of(FRAMEWORK_TENSORFLOW, tf.TensorType(tensor)),
                                       .device_type = HVD_CPU};
    tf.DeleteTensor(tensor);
}

/* Makes an output, in the input's memory if nothing else needs that any longer. */
static void make_output(struct call *call, int index, TF_Status *failure)
{
    const hvd_tensor *input = &call->inputs[index];
    if (input->ndim > HVD_MAX_DIMENSIONS)
        return; /* the engine refuses it */
    int forwarded;
    TF_Tensor *tensor = tf.ForwardInputOrAllocateOutput(call->context, &index, 1, index, input->shape,
                                                        input->ndim, &forwarded, failure);
    if (!tensor)
        return;
    call->outputs[index] = *input;
    call->outputs[index].data = tf.TensorData(tensor);
    tf.DeleteTensor(tensor);
}

/* Reads the splits of an alltoall. */
static hvd_code read_splits(struct call *call, hvd_context *context, int32_t set, hvd_request *request,
                            hvd_status *status)
{
    TF_Tensor *tensor = NULL;
    TF_Status *failure = tf.NewStatus();
    tf.GetInput(call->context, 1, &tensor, failure);
    hvd_code code = tf.GetCode(failure) ? fail(status, HVD_SYSTEM, tf.Message(failure)) : HVD_OK;
    tf.DeleteStatus(failure);
    if (code)
        return code;
    int64_t count = tf.TensorElementCount(tensor);
    int32_t ranks = engine->process_set_ranks(context, set, NULL, 0);
    request->splits = tf.TensorData(tensor);
    if (ranks >= 0 && (count != ranks || tf.NumDims(tensor) != 1)) {
        code = status->code = HVD_INVALID_ARGUMENT;
        snprintf(status->text, sizeof status->text,
                 "alltoall: %lld splits for %d ranks; there must be one for each, in one dimension",
                 (long long)count, (int)ranks);
    }
    tf.DeleteTensor(tensor);
    return code;
}

static hvd_code read_tensors(struct call *call, hvd_status *status)
{
    TF_Status *failure = tf.NewStatus();
    for (int i = 0; i < call->count && !tf.GetCode(failure); i++)
        read_input(call, i, failure);
    for (int i = 0; call->outputs && i < call->count && !tf.GetCode(failure); i++)
        make_output(call, i, failure);
    hvd_code code = tf.GetCode(failure) ? fail(status, HVD_SYSTEM, tf.Message(failure)) : HVD_OK;
    tf.DeleteStatus(failure);
    return code;
}

/* Submits a call, which may be gone when this returns HVD_OK; on an error nothing was started. */
static hvd_code submit(const struct node *node, struct call *call, hvd_status *status)
{
    hvd_request request = node->request;
    hvd_context *context = engine->acquire(status);
    if (!context)
        return status->code;
    request.count = call->count;
    request.inputs = call->inputs;
    request.outputs = call->outputs;
    request.waits = engine->may_help();
    request.done = finish;
    request.done_argument = call;
    hvd_code code = HVD_OK;
    if (node->splits_given)
        code = read_splits(call, context, request.process_set, &request, status);
    if (code)
        goto release_context;
    call->job = context;
    call->step = node->step ? node->name : NULL;
    code = engine->submit(context, &request, &call->handle, status);
    if (code)
        goto release_context;
    engine->help(call->handle);
    release(call);
release_context:
    engine->release();
    return code;
}

static void start(const struct node *node, TF_OpKernelContext *context, struct completion completion,
                  sem_t *over)
{
    hvd_status status;
    struct call *call = make_call(node, context);
    if (!call) {
        fail(&status, HVD_OUT_OF_MEMORY, "out of memory for an operation of TensorFlow");
        kernel_fail(context, &status);
        if (over)
            sem_post(over);
        else
            completion_run(&completion);
        return;
    }
    call->completion = completion;
    call->over = over;
    if (read_tensors(call, &status) || submit(node, call, &status)) {
        call->holders = 1; /* the engine has none */
        finish(call, &status);
    }
}

static void compute_async(void *kernel, TF_OpKernelContext *context, struct tf_function *done)
{
    start(kernel, context, completion_keep(done), NULL);
}

static void compute(void *kernel, TF_OpKernelContext *context)
{
    sem_t over;
    sem_init(&over, 0, 0);
    start(kernel, context, (struct completion){.lasting = NULL}, &over);
    while (sem_wait(&over)) /* a signal's handler has run */
        ;
    sem_destroy(&over);
}

/* ---- kernels ------------------------------------------------------------------------------------------ */

static double read_factor(TF_OpKernelConstruction *construction, const char *name, TF_Status *failure)
{
    double value;
    int64_t bits = kernel_read_integer(construction, name, failure);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void *create(TF_OpKernelConstruction *construction, hvd_operation operation, int grouped)
{
    TF_Status *failure = tf.NewStatus();
    struct node *node = calloc(1, sizeof *node);
    if (!node) {
        tf.SetStatus(failure, engine->absl_code(HVD_OUT_OF_MEMORY), "out of memory for a kernel");
    } else {
        hvd_request *request = &node->request;
        *request = (hvd_request){.struct_size = sizeof *request, .operation = operation, .grouped = grouped};
        if (!kernel_read_integer(construction, "unnamed", failure)) {
            request->name = node->name;
            if (!tf.GetCode(failure))
                tf.OpKernelConstruction_GetAttrString(construction, "tensor_name", node->name,
                                                      sizeof node->name - 1, failure);
        }
        request->process_set = (int32_t)kernel_read_integer(construction, "process_set_id", failure);
        if (operation == HVD_ALLTOALL)
            node->splits_given = kernel_read_integer(construction, "splits_given", failure) != 0;
        if (operation == HVD_ALLREDUCE)
            node->step = kernel_read_integer(construction, "step", failure) != 0;
        if (operation == HVD_BROADCAST)
            request->root = (int32_t)kernel_read_integer(construction, "root_rank", failure);
        if (operation == HVD_ALLREDUCE || operation == HVD_REDUCESCATTER) {
            request->reduction = (hvd_reduction)kernel_read_integer(construction, "reduce_op", failure);
            node->factors[0] = read_factor(construction, "prescale_bits", failure);
            node->factors[1] = read_factor(construction, "postscale_bits", failure);
            request->prescale = &node->factors[0];
            request->postscale = &node->factors[1];
        }
    }
    if (tf.GetCode(failure))
        tf.OpKernelConstruction_Failure(construction, failure);
    tf.DeleteStatus(failure);
    return node;
}

/* TensorFlow does not say of which operation it constructs a kernel. */
#define CREATE(name, operation, grouped)                                                                     \
    static void *create_##name(TF_OpKernelConstruction *construction)                                        \
    {                                                                                                        \
        return create(construction, operation, grouped);                                                     \
    }
#define KERNELS(KERNEL)                                                                                      \
    KERNEL(Allreduce, HVD_ALLREDUCE, 0)                                                                      \
    KERNEL(GroupedAllreduce, HVD_ALLREDUCE, 1)                                                               \
    KERNEL(Allgather, HVD_ALLGATHER, 0)                                                                      \
    KERNEL(GroupedAllgather, HVD_ALLGATHER, 1)                                                               \
    KERNEL(Reducescatter, HVD_REDUCESCATTER, 0)                                                              \
    KERNEL(GroupedReducescatter, HVD_REDUCESCATTER, 1)                                                       \
    KERNEL(Broadcast, HVD_BROADCAST, 0)                                                                      \
    KERNEL(Alltoall, HVD_ALLTOALL, 0)                                                                        \
    KERNEL(Join, HVD_JOIN, 0)
KERNELS(CREATE)

void collectives_register(bool asynchronous)
{
    static const struct {
        const char *operation;
        tf_create_fn *create;
    } kernels[] = {
#define ROW(name, operation, grouped) {"Horovod" #name, create_##name},
        KERNELS(ROW)
#undef ROW
    };
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        const char *operation = kernels[i].operation;
        kernel_register(
            operation,
            asynchronous ? tf.NewAsyncKernelBuilder(operation, "CPU", kernels[i].create, compute_async, free)
                         : tf.NewKernelBuilder(operation, "CPU", kernels[i].create, compute, free));
    }
}
