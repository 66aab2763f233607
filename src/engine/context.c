/* context.c - the life of a context, its counters, and the causes that callbacks leave for the thread that
 * makes progress. Every file of the engine may call it; it calls none of them except turns.c. Any thread,
 * except where context.h says otherwise. */
#include "engine/context.h"

#include "base/status.h"
#include "device/memory.h"

#include <assert.h>
#include <stdlib.h>

void context_retain(struct hvd_context *context)
{
    atomic_fetch_add_explicit(&context->references, 1, memory_order_relaxed);
}

void context_release(struct hvd_context *context)
{
    if (atomic_fetch_sub_explicit(&context->references, 1, memory_order_acq_rel) > 1)
        return;
    if (!atomic_load(&context->forked))
        pool_fini(&context->pool);
    map_free(&context->names);
    pthread_mutex_destroy(&context->handles_lock);
    pthread_mutex_destroy(&context->rendezvous_lock);
    counters_fini(&context->counters);
    pthread_mutex_destroy(&context->steps.lock);
    if (!atomic_load(&context->forked)) /* a child does not have the page */
        page_free(&context->page);
    turns_free(&context->order);
    free(context);
}

hvd_code context_check_process(const struct hvd_context *context, hvd_status *status)
{
    if (!context)
        return status_set(status, HVD_INVALID_ARGUMENT, "the context is NULL: call hvd_init first");
    if (atomic_load_explicit(&context->forked, memory_order_relaxed))
        return status_set(
            status, HVD_FORKED,
            "init was called in the parent process; a forked child can't use its connections: call init "
            "in the child, or start it without fork");
    return HVD_OK;
}

void context_use_device(struct hvd_context *context, int32_t device_id)
{
    int none = -1;
    if (atomic_load_explicit(&context->device_id, memory_order_relaxed) < 0 &&
        atomic_compare_exchange_strong(&context->device_id, &none, device_id))
        log_info(context->placement.rank,
                 "tensors of this rank are on GPU %d; they travel through the memory of the host, which was "
                 "tested on a stand-in for the driver, but on no GPU yet",
                 (int)device_id);
}

int32_t context_device(const struct hvd_context *context, const struct memory_ops *memory)
{
    int32_t used = atomic_load(&context->device_id);
    if (used >= 0 || memory->host_access)
        return used < 0 ? 0 : used;
    int32_t count = memory->count();
    return count ? context->placement.local_rank % count : 0;
}

void context_no_memory(const struct hvd_context *context, hvd_status *status)
{
    hvd_status problem;
    status_no_memory(&problem);
    status_set(status, HVD_OUT_OF_MEMORY, "rank %d: %.500s", context->placement.rank, problem.text);
}

void context_fail(struct hvd_context *context, const hvd_status *cause)
{
    if (atomic_load(&context->failed))
        return;
    log_debug(context->placement.rank, "no further operations: %s", cause->text);
    status_copy(&context->failure, cause);
    atomic_store(&context->failed, true);
    if (cause->code != HVD_SHUT_DOWN)
        page_fail(&context->page, cause->text);
}

void context_fault(struct hvd_context *context, const hvd_status *cause)
{
    assert(context_is_held(context));
    if (!context->fault.code)
        status_copy(&context->fault, cause);
}

/* ---- counters ---------------------------------------------------------------------------------------- */

void counters_init(struct counters *counters)
{
    *counters = (struct counters){0};
    pthread_mutex_init(&counters->lock, NULL);
}

void counters_fini(struct counters *counters)
{
    while (counters->first) {
        struct set_counters *set = counters->first;
        counters->first = set->next;
        free(set);
    }
    pthread_mutex_destroy(&counters->lock);
}

static struct set_counters *make_counters(struct page_writer *page, int process_set)
{
    struct page_set *place = page_add_set(page, process_set);
    size_t own = place ? 0 : OPERATION_NUMBERS * sizeof(struct operation_counters);
    struct set_counters *made = calloc(1, sizeof *made + own);
    if (!made)
        return NULL;
    made->process_set = process_set;
    made->place = place;
    made->operations = place ? place->operations : made->own;
    return made;
}

struct set_counters *counters_of(struct hvd_context *context, int process_set)
{
    struct counters *counters = &context->counters;
    pthread_mutex_lock(&counters->lock);
    struct set_counters *set = counters->first;
    while (set && set->process_set != process_set)
        set = set->next;
    if (!set && (set = make_counters(&context->page, process_set))) {
        *(counters->first ? &counters->last->next : &counters->first) = set;
        counters->last = set;
    }
    pthread_mutex_unlock(&counters->lock);
    return set;
}
