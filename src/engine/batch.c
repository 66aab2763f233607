/* batch.c - see batch.h. */
#include "engine/batch.h"

#include "base/pool.h"
#include "base/status.h"
#include "base/types.h"
#include "engine/context.h"
#include "engine/layout.h"
#include "engine/membership.h"
#include "engine/observe.h"
#include "engine/progress.h"
#include "engine/stand_in.h"
#include "engine/tuning.h"

#include <stdlib.h>

static void batch_done(struct collective *collective, const hvd_status *status)
{
    struct running_batch *running = collective->owner;
    struct comm *comm = running->comm;
    for (int i = 0; i < running->count; i++)
        handle_finish(running->handles[i], status);
    coordinator_batch_done(comm->coordinator, running->sequence);
    /* A place in flight has become free: the next flush may start what waited for it. */
    comm->active = true;
    layout_free(running);
    if (status->code)
        progress_fault(comm->context, status);
}

static void describe_job(struct running_batch *running, const hvd_request *request, const struct batch *batch)
{
    struct collective *collective = &running->collective;
    collective->operation = request->operation;
    collective->reduction = request->reduction;
    /* What is only moved is moved as bytes, whatever it is. */
    collective->dtype = operation_reduces(request->operation) ? request->inputs[0].dtype : HVD_UINT8;
    /* An identity stays what it is. Where there is a factor it is that of all members, or of none: see
     * runs_alone in decide.c. */
    bool stands_in = !batch->requests[0];
    /* A factor that the caller left at 0 is 1. */
    collective->prescale = request->prescale != 0 && !stands_in ? request->prescale : 1;
    collective->postscale = request->postscale != 0 ? request->postscale : 1;
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

static hvd_code run(struct comm *comm, struct hvd_handle *const *handles, const struct batch *batch,
                    hvd_status *status)
{
    struct running_batch *running = layout_create(handles, batch->count, comm->size);
    if (!running)
        return status_set(status, HVD_OUT_OF_MEMORY, "rank %d is out of memory for a batch of %d requests",
                          comm->context->placement.rank, batch->count);
    running->comm = comm;
    running->sequence = batch->sequence;
    describe_job(running, &handles[0]->request, batch);
    hvd_code code = layout_fill(running, status);
    if (code) {
        layout_free(running);
        return code;
    }
    struct operation_counters *counters = &comm->counters->operations[running->collective.operation];
    counter_add(&counters->batches, 1);
    counter_add(&counters->bytes, running->collective.input.length);
    observe_dispatched(running);
    if (comm->tuning)
        tuning_count(comm->tuning, running);
    /* Queued only: `done` is called later in this turn, or in another one, and frees it all. */
    backends_start(&comm->backends, &running->collective);
    return HVD_OK;
}

/* Observers hear what becomes of it, though this rank has submitted nothing. */
static hvd_code take_stand_in(struct comm *comm, const struct member *member, struct hvd_handle **handle,
                              hvd_status *status)
{
    hvd_code code = stand_in_create(comm, member, handle, status);
    if (!code)
        (*handle)->observed = observed(comm->context);
    return code;
}

/* This rank's handle for a member of the batch; it has none of its own when it is here because it joined. */
static hvd_code find_handle(struct comm *comm, const struct batch *batch, int index,
                            struct hvd_handle **handle, hvd_status *status)
{
    if (!batch->requests[index])
        return take_stand_in(comm, &batch->members[index], handle, status);
    *handle = batch->requests[index]->owner;
    return HVD_OK;
}

void batch_start(struct comm *comm, const struct batch *batch)
{
    hvd_status status;
    int found = 0;
    size_t bytes = (size_t)batch->count * sizeof(struct hvd_handle *);
    struct hvd_handle **handles = pages_take(bytes);
    hvd_code code = handles ? HVD_OK : HVD_OUT_OF_MEMORY;
    if (code)
        status_set(&status, code, "rank %d is out of memory for a batch", comm->context->placement.rank);
    for (int i = 0; !code && i < batch->count; i++) {
        code = find_handle(comm, batch, i, &handles[i], &status);
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
    pages_give(handles, bytes);
}
