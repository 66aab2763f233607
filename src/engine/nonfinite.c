/* nonfinite.c - see nonfinite.h. */
#include "engine/nonfinite.h"

#include "base/status.h"
#include "base/types.h"
#include "device/finite.h"
#include "engine/batch.h"
#include "engine/comm.h"
#include "engine/context.h"
#include "engine/handle.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define SMALL_BYTES ((size_t)64 << 10)

/* The search for a loss scale, which starts at 2^16 and is halved in each step with an infinity, has ended
 * after this many of them. */
#define LASTING 25

hvd_code nonfinite_open(struct hvd_context *context, hvd_status *status)
{
    const char *rule = context->settings.check_nonfinite;
    bool small = strcmp(rule, "small") == 0, all = strcmp(rule, "all") == 0;
    if (!small && !all && strcmp(rule, "off") != 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "HOROVOD_CHECK_NONFINITE=%s: it is 'small' (tensors of at most 64 KiB), 'all' or "
                          "'off'",
                          rule);
    context->nonfinite.limit = small ? SMALL_BYTES : all ? SIZE_MAX : 0;
    return HVD_OK;
}

/* ---- what it means ------------------------------------------------------------------------------------- */

/* What was found in the tensors of a request. */
struct found {
    enum finiteness worst;
    int tensor; /* the first that has it */
    unsigned tensors;
};

static void add(struct found *found, enum finiteness has, int tensor)
{
    found->tensors += has != ALL_FINITE;
    if (has > found->worst)
        *found = (struct found){has, tensor, found->tensors};
}

static void begin(struct nonfinite *state, uint32_t name, int64_t step, bool own_infinity)
{
    state->spreading = true;
    state->own_infinity = own_infinity;
    state->name = name;
    state->rounds = 0;
    state->began = step;
}

/* Returns true if the name was not warned of. */
static bool is_new(struct nonfinite *state, uint32_t name)
{
    for (int i = 0; i < state->warned_count; i++) {
        if (state->warned[i] == name)
            return false;
    }
    if (state->warned_count == NONFINITE_WARNED)
        return false;
    state->warned[state->warned_count++] = name;
    return true;
}

static void warn(struct comm *comm, const struct hvd_handle *handle, const struct found *found, uint32_t name)
{
    struct nonfinite *state = &comm->context->nonfinite;
    char where[PAGE_NAN_TEXT], when[40] = "", whose[40] = "every rank";
    if (!is_new(state, name))
        return;
    if (handle->request.count > 1)
        snprintf(where, sizeof where, "tensor %d of %s", found->tensor, handle->name);
    else
        snprintf(where, sizeof where, "%s", handle->name);
    if (state->began)
        snprintf(when, sizeof when, " at step %lld", (long long)state->began);
    if (comm->id)
        snprintf(whose, sizeof whose, "every rank of process set %d", comm->id);
    page_set_nan(&comm->context->page, where, state->began);
    log_warning(comm->context->placement.rank,
                "%s in this rank's input of %s%s, before it was reduced%s; %s gets it now",
                state->own_infinity ? "infinity" : "NaN", where, when,
                state->own_infinity ? ", and nothing finite since" : "", whose);
}

/* Returns true if a number that was not finite may have caused another one in this step, which computes with
 * the results of the step before, but not with those of earlier ones, whose names may come rarely. If no
 * steps are reported, it may as long as the name that had it has had no finite result. */
static bool may_cause(const struct nonfinite *state, const struct page *page, int64_t step)
{
    bool reported = atomic_load_explicit(&page->head.steps, memory_order_relaxed);
    return state->spreading && (!reported || step <= state->last + 1);
}

static void note_input(struct comm *comm, const struct hvd_handle *handle, const struct found *found)
{
    struct page_writer *page = &comm->context->page;
    struct nonfinite *state = &comm->context->nonfinite;
    uint32_t name = page_name_of(page, handle->record);
    int64_t step = page_step(page, name);
    bool caused = may_cause(state, page->page, step);
    counter_add(&handle->counters->nonfinite, found->tensors);
    if (!caused)
        begin(state, name, step, found->worst == HAS_INFINITY);
    state->last = step;
    state->rounds += caused && name == state->name;
    if (caused ? state->own_infinity && state->rounds == LASTING : found->worst == HAS_NAN)
        warn(comm, handle, found, name);
}

static void note_result(struct comm *comm, const struct hvd_handle *handle, const struct found *found)
{
    struct page_writer *page = &comm->context->page;
    struct nonfinite *state = &comm->context->nonfinite;
    bool finite = found->worst == ALL_FINITE;
    if (finite && !state->spreading)
        return;
    uint32_t name = page_name_of(page, handle->record);
    if (finite) {
        state->spreading = name != state->name;
        return;
    }
    int64_t step = page_step(page, name);
    if (!may_cause(state, page->page, step))
        begin(state, name, step, false);
    state->last = step;
}

static void note(struct comm *comm, const struct hvd_handle *handle, const struct found *found,
                 bool is_result)
{
    if (is_result)
        note_result(comm, handle, found);
    else if (found->worst != ALL_FINITE)
        note_input(comm, handle, found);
}

/* ---- where it is looked for ---------------------------------------------------------------------------- */

/* The input of a reducescatter is one block for each rank, of rows of all tensors; its output has results
 * between the room for the blocks of lower and of higher ranks. Other vectors have a span for each tensor. */
void nonfinite_check_batch(const struct running_batch *running, bool is_result)
{
    const struct collective *collective = &running->collective;
    const struct vector *vector = is_result ? &collective->output : &collective->input;
    bool parted = operation_table[collective->operation].result == RESULT_part;
    size_t element = dtype_table[collective->dtype].size;
    int blocks = parted && !is_result ? collective->size : 1, stride = vector->count / blocks;
    int next = parted && is_result;
    size_t limit = running->comm->context->nonfinite.limit / (size_t)blocks;
    assert(context_is_held(running->comm->context));
    for (int i = 0; i < running->count; i++) {
        const struct hvd_handle *handle = running->handles[i];
        struct found found = {0};
        if (handle->own_data) /* this rank has joined */
            return;
        for (int t = 0; t < handle->request.count; t++) {
            if (!batch_includes(running, handle, t))
                continue;
            enum finiteness worst = ALL_FINITE;
            for (int block = 0; block < blocks; block++) {
                const struct span *span = &vector->spans[next + block * stride];
                enum finiteness has = span->length <= limit ? finiteness_of(collective->dtype, span->data,
                                                                            span->length / element)
                                                            : ALL_FINITE;
                worst = has > worst ? has : worst;
            }
            add(&found, worst, t);
            next++;
        }
        note(running->comm, handle, &found, is_result);
    }
}

void nonfinite_check_eager(struct comm *comm, const struct hvd_handle *handle, bool is_result)
{
    const hvd_request *request = &handle->request;
    const hvd_tensor *tensors = is_result && request->outputs ? request->outputs : request->inputs;
    struct found found = {0};
    assert(context_is_held(comm->context));
    for (int i = 0; i < request->count; i++) {
        size_t bytes = tensor_bytes(&tensors[i]);
        if (bytes <= comm->context->nonfinite.limit)
            add(&found,
                finiteness_of(tensors[i].dtype, tensors[i].data, bytes / dtype_table[tensors[i].dtype].size),
                i);
    }
    note(comm, handle, &found, is_result);
}
