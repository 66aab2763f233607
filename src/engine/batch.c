/* batch.c - see batch.h. */
#include "engine/batch.h"

#include "base/status.h"
#include "base/types.h"
#include "engine/context.h"
#include "engine/layout.h"
#include "engine/membership.h"
#include "engine/observe.h"
#include "engine/progress.h"

static void batch_done(struct job *job, const hvd_status *status)
{
    struct running_batch *running = job->owner;
    struct lane *lane = running->lane;
    for (int i = 0; i < running->count; i++)
        handle_finish(running->handles[i], status);
    coordinator_batch_done(lane->coordinator, running->sequence);
    lane->active = true;
    layout_free(running);
    if (status->code)
        progress_fault(lane->context, status);
}

static void describe_job(struct running_batch *running, const hvd_request *request, uint16_t algorithm)
{
    struct job *job = &running->job;
    job->operation = request->operation;
    job->reduction = request->reduction;
    job->dtype = operation_reduces(request->operation) ? request->inputs[0].dtype : HVD_UINT8;
    job->prescale = request->prescale != 0 ? request->prescale : 1;
    job->postscale = request->postscale != 0 ? request->postscale : 1;
    job->root = request->root;
    job->rank = running->lane->rank;
    job->size = running->lane->size;
    job->channel = running->lane->channel;
    job->algorithm = algorithm_table[algorithm];
    job->own_rows = running->own_rows;
    job->row_bytes = running->row_bytes;
    job->gathered = layout_gathered;
    job->phased = observed(running->lane->context) ? observe_phase : NULL;
    job->done = batch_done;
    job->owner = running;
}

/* The other ranks run the batch: the job can't go on. */
static void refuse_batch(struct lane *lane, const struct batch *batch, const hvd_status *cause)
{
    for (int i = 0; i < batch->count; i++)
        handle_finish(batch->requests[i]->owner, cause);
    progress_fault(lane->context, cause);
}

/* The number came from another process. */
static bool algorithm_is_for(uint16_t algorithm, hvd_operation operation)
{
    return algorithm < algorithm_count && algorithm_table[algorithm]->operation == operation;
}

static bool changes_membership(hvd_operation operation)
{
    return operation == HVD_ADD_PROCESS_SET || operation == HVD_REMOVE_PROCESS_SET;
}

void batch_start(struct lane *lane, const struct batch *batch)
{
    const struct hvd_handle *first = batch->requests[0]->owner;
    int rank = lane->context->placement.rank;
    hvd_status status;
    if (changes_membership(first->request.operation)) {
        coordinator_batch_done(lane->coordinator, batch->sequence);
        membership_decided(lane->context, batch->requests[0]->owner);
        return;
    }
    if (!algorithm_is_for(batch->algorithm, first->request.operation)) {
        status_set(&status, HVD_REFUSED,
                   "rank %d was told to run %s by algorithm %d, which it lacks; do the ranks run "
                   "different versions?",
                   rank, first->pending.name, batch->algorithm);
        refuse_batch(lane, batch, &status);
        return;
    }
    struct running_batch *running = layout_create(batch, lane->size);
    if (!running) {
        status_set(&status, HVD_OUT_OF_MEMORY, "rank %d is out of memory for a batch of %d requests", rank,
                   batch->count);
        refuse_batch(lane, batch, &status);
        return;
    }
    running->lane = lane;
    running->sequence = batch->sequence;
    describe_job(running, &first->request, batch->algorithm);
    if (layout_fill(running, &status)) {
        layout_free(running);
        refuse_batch(lane, batch, &status);
        return;
    }
    observe_dispatched(running);
    executor_start(lane->executor, &running->job);
}
