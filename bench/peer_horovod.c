/* peer_horovod.c - the collectives of this engine, from C: horovodrun -np N bench_peer_horovod ... */
#include "horovod.h"
#include "protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static hvd_context *context;

static void check(hvd_code code, const hvd_status *status)
{
    if (code) {
        fprintf(stderr, "bench: %s\n", status->text);
        exit(1);
    }
}

/* The number behind the last type where there is none of this name. */
static hvd_dtype dtype_of(const char *name)
{
    hvd_dtype dtype = HVD_UINT8;
    while (hvd_dtype_size(dtype) && strcmp(hvd_dtype_name(dtype), name) != 0)
        dtype++;
    return dtype;
}

size_t peer_element_size(const char *dtype)
{
    return hvd_dtype_size(dtype_of(dtype));
}

static hvd_tensor describe(const struct tensors *tensors, int index, const int64_t *elements)
{
    return (hvd_tensor){.data = tensors->data[index],
                        .shape = elements,
                        .ndim = 1,
                        .dtype = dtype_of(tensors->dtype),
                        .device_type = HVD_CPU};
}

static hvd_request request_of(hvd_operation operation, const char *name, const hvd_tensor *inputs, int count)
{
    return (hvd_request){.struct_size = sizeof(hvd_request),
                         .operation = operation,
                         .name = name,
                         .count = count,
                         .inputs = inputs,
                         .reduction = HVD_SUM};
}

/* One blocking call on the first tensor; results that are the engine's are given back. */
static void call_into(hvd_operation operation, struct tensors *tensors, const hvd_tensor *output)
{
    int64_t elements = (int64_t)tensors->elements[0];
    hvd_tensor input = describe(tensors, 0, &elements), results[2] = {0};
    hvd_request request = request_of(operation, "bench", &input, 1);
    request.outputs = output;
    hvd_status status;
    check(hvd_run(context, &request, results, &status), &status);
    hvd_free(results[0].data);
    hvd_free(results[1].data);
}

static void call(hvd_operation operation, struct tensors *tensors)
{
    call_into(operation, tensors, NULL);
}

static void allreduce(struct tensors *tensors)
{
    call(HVD_ALLREDUCE, tensors);
}

static void reduce_by(hvd_reduction reduction, struct tensors *tensors)
{
    int64_t elements = (int64_t)tensors->elements[0];
    hvd_tensor input = describe(tensors, 0, &elements), result = {0};
    hvd_request request = request_of(HVD_ALLREDUCE, "reduce", &input, 1);
    request.reduction = reduction;
    hvd_status status;
    check(hvd_run(context, &request, &result, &status), &status);
}

static void adasum(struct tensors *tensors)
{
    reduce_by(HVD_ADASUM, tensors);
}

static void average(struct tensors *tensors)
{
    reduce_by(HVD_AVERAGE, tensors);
}

/* In memory that the other ranks read in place; it stays until the end. */
static void allreduce_shared(struct tensors *tensors)
{
    static void *memory;
    static size_t bytes;
    hvd_status status;
    if (bytes != tensors->elements[0] * tensors->element_size) {
        hvd_shared_free(memory);
        bytes = tensors->elements[0] * tensors->element_size;
        check(hvd_shared_alloc(bytes, &memory, &status), &status);
    }
    void *data[] = {memory};
    call(
        HVD_ALLREDUCE,
        &(struct tensors){.number = 1, .dtype = tensors->dtype, .data = data, .elements = tensors->elements});
}

static void allgather(struct tensors *tensors)
{
    call(HVD_ALLGATHER, tensors);
}

static void broadcast(struct tensors *tensors)
{
    call(HVD_BROADCAST, tensors);
}

static void alltoall(struct tensors *tensors)
{
    call(HVD_ALLTOALL, tensors);
}

static void reducescatter(struct tensors *tensors)
{
    call(HVD_REDUCESCATTER, tensors);
}

/* The result goes where MPI puts it: into memory that is there already. */
static void call_into_output(hvd_operation operation, struct tensors *tensors, int64_t elements)
{
    hvd_tensor output = describe(tensors, 0, &elements);
    output.data = tensors->output;
    call_into(operation, tensors, &output);
}

static void allgather_into(struct tensors *tensors)
{
    call_into_output(HVD_ALLGATHER, tensors, (int64_t)tensors->elements[0] * peer_size());
}

static void alltoall_into(struct tensors *tensors)
{
    call_into_output(HVD_ALLTOALL, tensors, (int64_t)tensors->elements[0]);
}

static void reducescatter_into(struct tensors *tensors)
{
    call_into_output(HVD_REDUCESCATTER, tensors, (int64_t)tensors->elements[0] / peer_size());
}

static void finish(hvd_handle *handle)
{
    hvd_status status;
    check(hvd_wait(handle, -1, &status), &status);
    hvd_release(handle);
}

enum { MOST_TENSORS = 2048 };

/* All submitted, as a backward pass does, then all waited for. */
static void async(struct tensors *tensors)
{
    static hvd_handle *handles[MOST_TENSORS];
    hvd_status status;
    for (int i = 0; i < tensors->number; i++) {
        char name[16];
        /* The same names in every round, as in training. */
        snprintf(name, sizeof name, "%d", i);
        int64_t elements = (int64_t)tensors->elements[i];
        hvd_tensor input = describe(tensors, i, &elements);
        hvd_request request = request_of(HVD_ALLREDUCE, name, &input, 1);
        check(hvd_submit(context, &request, &handles[i], &status), &status);
    }
    for (int i = 0; i < tensors->number; i++)
        finish(handles[i]);
}

static void grouped(struct tensors *tensors)
{
    static hvd_tensor inputs[MOST_TENSORS];
    static int64_t elements[MOST_TENSORS];
    hvd_handle *handle;
    hvd_status status;
    for (int i = 0; i < tensors->number; i++) {
        elements[i] = (int64_t)tensors->elements[i];
        inputs[i] = describe(tensors, i, &elements[i]);
    }
    hvd_request request = request_of(HVD_ALLREDUCE, "group", inputs, tensors->number);
    request.grouped = 1;
    check(hvd_submit(context, &request, &handle, &status), &status);
    finish(handle);
}

const struct row peer_rows[] = {
    {"allreduce", allreduce},
    {"adasum", adasum},
    {"average", average},
    {"allreduce-shared", allreduce_shared},
    {"allgather", allgather},
    {"broadcast", broadcast},
    {"alltoall", alltoall},
    {"reducescatter", reducescatter},
    {"allgather-into", allgather_into},
    {"alltoall-into", alltoall_into},
    {"reducescatter-into", reducescatter_into},
    {"async", async},
    {"grouped", grouped},
    {NULL, NULL},
};

void peer_open(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    hvd_status status;
    check(hvd_init(NULL, &context, &status), &status);
}

void peer_close(void)
{
    hvd_shutdown(context);
}

int peer_rank(void)
{
    return hvd_get_placement(context).rank;
}

int peer_size(void)
{
    return hvd_get_placement(context).size;
}

void peer_barrier(void)
{
    hvd_status status;
    hvd_request request = request_of(HVD_BARRIER, NULL, NULL, 0);
    check(hvd_run(context, &request, NULL, &status), &status);
}

double peer_largest(double value)
{
    hvd_status status;
    hvd_tensor tensor = {.data = &value, .ndim = 0, .dtype = HVD_FLOAT64, .device_type = HVD_CPU};
    hvd_request request = request_of(HVD_ALLREDUCE, "largest", &tensor, 1);
    request.reduction = HVD_MAX;
    check(hvd_run(context, &request, NULL, &status), &status);
    return value;
}
