/* recorder.c - see recorder.h. A blocking call of 4 bytes takes 2 microseconds, so nothing here reads a clock
 * that its turn has not to read anyway, looks up a name that was not held back, or takes a lock. */
#include "engine/recorder.h"

#include "base/clock.h"
#include "base/platform_process.h"
#include "base/status.h"
#include "base/types.h"
#include "coordinate/name.h"
#include "engine/comm.h"
#include "engine/handle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Keeps a rare case from taking registers of the common one. */
#define COLD __attribute__((noinline, cold))

hvd_code recorder_open(struct hvd_context *context, hvd_status *status)
{
    const struct settings *settings = &context->settings;
    struct platform_process own;
    platform_process(getpid(), &own);
    struct page_identity identity = {.rank = context->placement.rank,
                                     .size = context->placement.size,
                                     .local_rank = -1,
                                     .epoch = (int32_t)settings->epoch,
                                     .process = getpid(),
                                     .process_start = own.start,
                                     .running = own.running,
                                     .runnable = own.runnable,
                                     .opened = clock_now(),
                                     .opened_at = clock_since_1970()};
    /* If nobody has named the job, its name is empty, or only what hvd_init adds for some of its ranks. */
    bool named = *settings->job && *settings->job != '-';
    if (!named && identity.size > 1)
        append_text(identity.job, sizeof identity.job, "%s", settings->rendezvous);
    else if (!named)
        append_text(identity.job, sizeof identity.job, "process-%d", (int)identity.process);
    append_text(identity.job, sizeof identity.job, "%s", settings->job);
    append_text(identity.version, sizeof identity.version, "%s", HVD_VERSION);
    gethostname(identity.host, sizeof identity.host - 1);
    return page_open(&context->page, settings->page, &identity, status);
}

/* Requests without a name have numbers, which would fill the table of names; some bindings generate names
 * with numbers, others lines of the program. Returns 0 if it is another name. */
static COLD uint32_t number_of(const struct hvd_handle *handle)
{
    const char *number = strrchr(handle->name, '.') + 1;
    bool is_number = *number && !number[strspn(number, "0123456789")];
    return is_number ? (uint32_t)strtoul(number, NULL, 10) | PAGE_COUNTED : 0;
}

static COLD uint32_t add_name(struct page_writer *writer, const struct hvd_handle *handle)
{
    const hvd_request *request = &handle->request;
    return page_add_name(writer, handle->name + name_prefix_length(request->operation, request->grouped));
}

/* The coordinator remembers names, and with them their ids. */
static uint32_t name_of(struct page_writer *writer, const struct comm *comm, const struct hvd_handle *handle)
{
    uint32_t name = 0, *mark;
    if (handle->pending.unnamed || handle->request.generated)
        name = number_of(handle);
    if (name)
        return name;
    mark = coordinator_mark(comm->coordinator, &handle->pending);
    if (mark && page_use_name(writer, *mark))
        return *mark;
    name = add_name(writer, handle);
    if (mark)
        *mark = name;
    return name;
}

/* If the coordinator does not know them. */
static COLD uint64_t bytes_of(const hvd_request *request)
{
    uint64_t bytes = 0;
    for (int i = 0; i < request->count; i++)
        bytes += tensor_bytes(&request->inputs[i]);
    return bytes;
}

void recorder_submitted(struct comm *comm, struct hvd_handle *handle)
{
    assert(context_is_held(comm->context));
    struct page_writer *writer = &comm->context->page;
    const hvd_request *request = &handle->request;
    uint32_t place = atomic_load_explicit(&handle->record, memory_order_relaxed);
    if (place) {
        page_released(writer, place);
        return;
    }
    unsigned flags = (request->grouped ? RECORD_GROUPED : 0) | (handle->footprint.held ? RECORD_HELD : 0);
    uint64_t bytes = coordinator_bytes(&handle->pending);
    place = page_submitted(writer, &(struct page_entry){.submitted = context_now(comm->context),
                                                        .bytes = bytes ? bytes : bytes_of(request),
                                                        .name = name_of(writer, comm, handle),
                                                        .process_set = comm->id,
                                                        .operation = (uint8_t)request->operation,
                                                        .flags = (uint8_t)flags});
    atomic_store_explicit(&handle->record, place, memory_order_relaxed);
}

void recorder_decided(struct hvd_context *context, const struct batch *batch)
{
    assert(context_is_held(context));
    int64_t now = context_now(context);
    for (int i = 0; i < batch->count; i++) {
        const struct hvd_handle *handle = batch->requests[i] ? batch->requests[i]->owner : NULL;
        if (handle)
            page_decided(&context->page, handle->record, batch->sequence, now);
    }
}

void recorder_finished(const struct hvd_handle *handle)
{
    struct hvd_context *context = handle->context;
    assert(context_is_held(context));
    if (handle->record)
        page_ended(&context->page, handle->record, handle->failure ? handle->failure->code : HVD_OK,
                   context_now(context));
}

unsigned recorder_sleeps(struct hvd_context *context, const atomic_uint *word)
{
    uint32_t place = 0;
    if (word != &context->closed) {
        const char *handle = (const char *)word - offsetof(struct hvd_handle, state);
        place = atomic_load_explicit(&((const struct hvd_handle *)handle)->record, memory_order_relaxed);
    }
    return page_sleeps(&context->page, place, clock_now());
}

void recorder_woken(struct hvd_context *context, unsigned caller)
{
    page_woken(&context->page, caller);
}

void recorder_paused(struct hvd_context *context, unsigned caller)
{
    page_paused(&context->page, caller, clock_now());
}
