/* submit.c - user threads' side of operations: check, describe, queue. The queue is a stack of one
 * compare-and-swap to push; the thread that makes progress takes it whole and reverses it. */
#include "base/clock.h"
#include "base/status.h"
#include "base/types.h"
#include "engine/batch.h"
#include "engine/context.h"
#include "engine/handle.h"
#include "engine/progress.h"

#include <string.h>

/* The caller's struct may be an older, shorter one. */
static hvd_code take_request(const hvd_request *request, hvd_request *own, hvd_status *status)
{
    if (!request || request->struct_size < offsetof(hvd_request, done) || request->struct_size > sizeof *own)
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "hvd_request.struct_size must be sizeof(hvd_request) of this or an older version (%zu)",
            sizeof *own);
    memset(own, 0, sizeof *own);
    memcpy(own, request, request->struct_size);
    return HVD_OK;
}

static void push(struct hvd_context *context, struct hvd_handle *handle)
{
    handle->next = atomic_load_explicit(&context->queue, memory_order_relaxed);
    /* Sequentially consistent, as the load of the lock in drive_notify must not come before it: see
     * drive.c. */
    while (!atomic_compare_exchange_weak(&context->queue, &handle->next, handle))
        ;
}

/* The size of the request's set; its root becomes a rank of the set. */
static hvd_code resolve_set(hvd_context *context, hvd_request *request, int *size, hvd_status *status)
{
    int none = -1;
    *size = context->placement.size;
    if (request->process_set == 0)
        return HVD_OK;
    bool rooted =
        operation_known((int)request->operation) && operation_takes(request->operation, ARGUMENT_root);
    int *root = rooted ? &request->root : &none;
    return sets_resolve(&context->sets, request->process_set, context->placement.rank, root, size, status);
}

/* Outputs mostly are fresh memory, of which every page is a fault: large ones are few. */
static void expect_writes(const struct hvd_handle *handle)
{
    const hvd_request *request = &handle->request;
    if (!request->outputs || !handle->memory->expect_writes)
        return;
    for (int32_t i = 0; i < request->count; i++)
        if (request->outputs[i].data != request->inputs[i].data)
            handle->memory->expect_writes(request->outputs[i].data, tensor_bytes(&request->outputs[i]));
}

/* `*handle` is there before any other thread can finish it: a `done` function may look at it. */
static hvd_code queue_request(hvd_context *context, const hvd_request *request, struct hvd_handle **handle,
                              hvd_status *status)
{
    hvd_request own;
    int size;
    struct hvd_handle *created;
    hvd_code code = context_check_process(context, status);
    if (!code)
        code = take_request(request, &own, status);
    if (!code)
        code = hvd_health(context, status);
    if (!code)
        code = resolve_set(context, &own, &size, status);
    if (!code)
        code = handle_create(context, &own, size, true, &created, status);
    if (code)
        return code;
    expect_writes(created);
    *handle = created;
    if (observed(context))
        created->submitted = clock_now();
    push(context, created);
    return HVD_OK;
}

hvd_code submit(hvd_context *context, const hvd_request *request, hvd_handle **handle, hvd_status *status)
{
    struct hvd_handle *unwanted;
    hvd_code code = queue_request(context, request, handle ? handle : &unwanted, status);
    if (code)
        return code;
    /* A caller that waits next makes progress itself: another thread would only contend for the lock. */
    if (!request->waits)
        drive_notify(context);
    if (!handle)
        handle_release(unwanted);
    return status_ok(status);
}

/* The ranks agree on these, too, but agreeing is only a part of what they need. */
static hvd_code check_public(const hvd_request *request, hvd_status *status)
{
    bool changes =
        request && operation_known((int)request->operation) && operation_changes_sets(request->operation);
    return changes ? status_set(status, HVD_INVALID_ARGUMENT,
                                "%s is no request: call hvd_process_set_add or hvd_process_set_remove",
                                hvd_operation_name(request->operation))
                   : HVD_OK;
}

hvd_code hvd_submit(hvd_context *context, const hvd_request *request, hvd_handle **handle, hvd_status *status)
{
    hvd_code code = check_public(request, status);
    return code ? code : submit(context, request, handle, status);
}

static hvd_code take_outputs(struct hvd_handle *handle, hvd_tensor *outputs, hvd_status *status)
{
    hvd_code code = HVD_OK;
    int first = handle->request.outputs ? handle->request.count : 0;
    for (int i = first; !code && outputs && i < handle->result_count; i++)
        code = hvd_output_take(handle, i, &outputs[i], status);
    return code;
}

hvd_code hvd_run(hvd_context *context, const hvd_request *request, hvd_tensor *outputs, hvd_status *status)
{
    struct hvd_handle *handle;
    hvd_code code = check_public(request, status);
    if (!code)
        code = queue_request(context, request, &handle, status);
    if (code)
        return code;
    code = hvd_wait(handle, -1, status);
    if (!code)
        code = take_outputs(handle, outputs, status);
    handle_release(handle);
    return code;
}
