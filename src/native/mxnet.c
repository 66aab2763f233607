/* mxnet.c - puts collectives on MXNet's engine as operations. mxnet_push runs in any thread of the caller,
 * `run` in a thread of MXNet, `finish` in any thread of the engine. An operation lives until MXNet's engine
 * deletes it: after it has run, or when it was skipped because the operation that makes its inputs failed. */
#include "native/mxnet.h"

#include "native/dtype.h"
#include "native/entry.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CPU = 1 };             /* MXNet's type of device */
enum { CPU_PRIORITIZED = 3 }; /* the property of operations that run by priority */

struct engine;
struct error { /* std::runtime_error of libstdc++ */
    void *words[2];
};

/* The callback for the end of an operation: an object of MXNet's engine, passed by address, which must be
 * copied. */
struct completion {
    void (*callback)(struct engine *engine, void *argument, const struct error *error);
    struct engine *engine;
    void *argument;
};

struct device {
    int type, id;
};

static struct {
    int (*push)(void (*run)(void *, void *, void *), void *argument, void (*free_argument)(void *),
                const struct device *device, void **read, int read_count, void **written, int written_count,
                const int *property, int priority, const char *name, bool waits);
    int (*shape)(void *array, int *ndim, const int64_t **extents);
    int (*type)(void *array, int *type);
    int (*data)(void *array, void **data);
    int (*share)(void *array, void **copy);
    int (*free)(void *array);
    const char *(*last_error)(void);
    void (*make_dense)(void *chunk); /* NULL without oneDNN */
    void (*error_create)(struct error *error, const char *text);
    void (*error_destroy)(struct error *error);
} mxnet;

struct operation {
    hvd_request request;
    double factors[2]; /* before and after the reduction */
    struct completion completion;
    int32_t count; /* of arrays: inputs, then outputs */
    char *name;
    hvd_tensor *tensors; /* [count] */
    int64_t (*shapes)[HVD_MAX_DIMENSIONS];
    void *arrays[]; /* [count], handles of this operation's own */
};

hvd_code mxnet_open(void *library, hvd_status *status)
{
    const struct {
        void *function;
        const char *name;
    } functions[] = {{&mxnet.push, "MXEnginePushAsyncND"},
                     {&mxnet.shape, "MXNDArrayGetShapeEx64"},
                     {&mxnet.type, "MXNDArrayGetDType"},
                     {&mxnet.data, "MXNDArrayGetData"},
                     {&mxnet.share, "MXNDArrayDetach"},
                     {&mxnet.free, "MXNDArrayFree"},
                     {&mxnet.last_error, "MXGetLastError"},
                     {&mxnet.error_create, "_ZNSt13runtime_errorC1EPKc"},
                     {&mxnet.error_destroy, "_ZNSt13runtime_errorD1Ev"},
                     {&mxnet.make_dense, "_ZN5mxnet7NDArray5Chunk15Reorder2DefaultEv"}};
    size_t count = sizeof functions / sizeof *functions;
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(library, functions[i].name);
        memcpy(functions[i].function, &address, sizeof address);
        if (address || functions[i].function == &mxnet.make_dense)
            continue;
        status->code = HVD_UNSUPPORTED;
        snprintf(status->text, sizeof status->text,
                 "this MXNet has no function %s; horovod.mxnet needs MXNet 1.9.1", functions[i].name);
        return status->code;
    }
    return HVD_OK;
}

/* ---- in MXNet's engine ------------------------------------------------------------------------------- */

static void free_arrays(struct operation *operation)
{
    for (int32_t i = 0; i < operation->count; i++)
        if (operation->arrays[i])
            mxnet.free(operation->arrays[i]);
    operation->count = 0;
}

static void free_operation(void *argument)
{
    struct operation *operation = argument;
    free_arrays(operation);
    free(operation->tensors);
    free(operation->shapes);
    free(operation->name);
    free(operation);
}

/* Completes the operation, which may be gone when this returns. Its arrays are freed first: freeing one
 * pushes another operation, which must not follow the last one that MXNet waits for at the end of the
 * process. */
static void finish(void *argument, const hvd_status *status)
{
    struct operation *operation = argument;
    struct completion completion = operation->completion;
    struct error error;
    free_arrays(operation);
    entry_callback_begin();
    if (status->code) {
        mxnet.error_create(&error, status->text);
        completion.callback(completion.engine, completion.argument, &error);
        mxnet.error_destroy(&error);
    } else {
        completion.callback(completion.engine, completion.argument, NULL);
    }
    entry_callback_end();
}

/* Returns the memory of an array: an NDArray starts with the address of the memory that it shares with its
 * views. */
static void *chunk_of(void *array)
{
    return *(void **)array;
}

/* Finds the addresses of the arrays, which are known only now; oneDNN's operators may have changed their
 * layout. */
static hvd_code find_data(struct operation *operation, hvd_status *status)
{
    for (int32_t i = 0; i < operation->count; i++) {
        if (mxnet.make_dense)
            mxnet.make_dense(chunk_of(operation->arrays[i]));
        if (mxnet.data(operation->arrays[i], &operation->tensors[i].data)) {
            status->code = HVD_SYSTEM;
            snprintf(status->text, sizeof status->text, "MXNet: %s", mxnet.last_error());
            return status->code;
        }
    }
    return HVD_OK;
}

static void run(void *resources, void *on_complete, void *argument)
{
    (void)resources;
    struct operation *operation = argument;
    hvd_handle *handle;
    hvd_status status;
    operation->completion = *(const struct completion *)on_complete;
    hvd_context *context = find_data(operation, &status) ? NULL : entry_acquire(&status);
    if (!context) {
        finish(operation, &status);
        return;
    }
    hvd_request request = operation->request; /* the operation may be gone before hvd_submit returns */
    request.waits = entry_may_help();
    if (hvd_submit(context, &request, &handle, &status)) {
        finish(operation, &status);
    } else {
        entry_help(handle);
        hvd_release(handle);
    }
    entry_release();
}

/* ---- in the caller ----------------------------------------------------------------------------------- */

/* Makes a handle of the operation's own, as the caller may drop its handle, and describes the array before it
 * has data. */
static int describe(struct operation *operation, int32_t index, void *array)
{
    hvd_tensor *tensor = &operation->tensors[index];
    const int64_t *extents; /* valid until this thread's next call */
    int type, ndim;
    if (mxnet.share(array, &operation->arrays[index]) || mxnet.type(array, &type) ||
        mxnet.shape(array, &ndim, &extents))
        return -1;
    ndim = ndim < 0 ? 0 : ndim > HVD_MAX_DIMENSIONS ? HVD_MAX_DIMENSIONS : ndim;
    memcpy(operation->shapes[index], extents, (size_t)ndim * sizeof *extents);
    *tensor = (hvd_tensor){.shape = operation->shapes[index],
                           .ndim = ndim,
                           .dtype = dtype_of(FRAMEWORK_MXNET, type),
                           .device_type = HVD_CPU};
    return 0;
}

/* Makes the operation of a call, without arrays; returns NULL if out of memory. */
static struct operation *create(const struct mxnet_call *call)
{
    int32_t count = call->count * (call->outputs ? 2 : 1);
    size_t size = (size_t)count + !count;
    struct operation *operation = calloc(1, sizeof *operation + size * sizeof *operation->arrays);
    if (!operation)
        return NULL;
    operation->count = count;
    operation->name = strdup(call->name);
    operation->tensors = calloc(size, sizeof *operation->tensors);
    operation->shapes = calloc(size, sizeof *operation->shapes);
    if (!operation->name || !operation->tensors || !operation->shapes) {
        free_operation(operation);
        return NULL;
    }
    operation->factors[0] = call->prescale;
    operation->factors[1] = call->postscale;
    operation->request = (hvd_request){.struct_size = sizeof(hvd_request),
                                       .operation = (hvd_operation)call->operation,
                                       .reduction = (hvd_reduction)call->reduction,
                                       .root = call->root,
                                       .process_set = call->process_set,
                                       .grouped = call->grouped,
                                       .generated = call->generated,
                                       .priority = call->priority,
                                       .prescale = &operation->factors[0],
                                       .postscale = &operation->factors[1],
                                       .name = operation->name,
                                       .count = call->count,
                                       .inputs = operation->tensors,
                                       .outputs = call->outputs ? operation->tensors + call->count : NULL,
                                       .done = finish,
                                       .done_argument = operation};
    return operation;
}

/* Fills in the arrays that share no memory, at most [operation->count]: MXNet's engine would wait forever if
 * one operation named the same memory twice. */
static int distinct(const struct operation *operation, void **arrays)
{
    int count = 0;
    for (int32_t i = 0; i < operation->count; i++) {
        int known = 0;
        while (known < count && chunk_of(arrays[known]) != chunk_of(operation->arrays[i]))
            known++;
        if (known == count)
            arrays[count++] = operation->arrays[i];
    }
    return count;
}

int mxnet_push(const struct mxnet_call *call)
{
    static const struct device device = {.type = CPU};
    static const int property = CPU_PRIORITIZED;
    struct operation *operation = create(call);
    void **arrays = calloc((size_t)call->count * 2 + 1, sizeof *arrays);
    int code = -2;
    if (!operation || !arrays)
        goto free_operation;
    for (int32_t i = 0; i < operation->count; i++) {
        code = describe(operation, i, i < call->count ? call->inputs[i] : call->outputs[i - call->count]);
        if (code)
            goto free_operation;
    }
    /* Inputs count as written: make_dense may change their layout. */
    code = mxnet.push(run, operation, free_operation, &device, NULL, 0, arrays, distinct(operation, arrays),
                      &property, call->priority, hvd_operation_name(call->operation), false);
    free(arrays);
    return code;
free_operation:
    if (operation)
        free_operation(operation);
    free(arrays);
    return code;
}
