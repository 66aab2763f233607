/* nonfinite.c - see nonfinite.h. */
#include "engine/nonfinite.h"

#include "base/status.h"
#include "base/types.h"
#include "engine/batch.h"
#include "engine/comm.h"
#include "engine/context.h"
#include "engine/handle.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define SMALL_BYTES ((size_t)64 << 10)

/* Keeps a rare case from taking registers of the common one. */
#define COLD __attribute__((noinline, cold))

/* The search for a loss scale, which starts at 2^16 and is halved in each step with an infinity, has ended
 * after this many of them. After as many finite results in a row, what has begun is not spreading. */
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
    int tensor;                /* the first that has it */
    unsigned checked, tensors; /* that were checked; of these, that are not finite */
};

static void add(struct found *found, enum finiteness has, int tensor)
{
    found->checked++;
    found->tensors += has != ALL_FINITE;
    if (has > found->worst) {
        found->worst = has;
        found->tensor = tensor;
    }
}

static uint64_t steps_of(const struct hvd_context *context)
{
    return atomic_load_explicit(&context->page.page->head.steps, memory_order_relaxed);
}

static bool reports_steps(const struct hvd_context *context)
{
    return atomic_load_explicit(&context->steps.expected, memory_order_relaxed) || steps_of(context);
}

/* Returns how many steps had been reported when the request was submitted. By now its own may have been. */
static uint64_t steps_before(const struct hvd_context *context, const struct hvd_handle *handle)
{
    return page_steps_before(&context->page, handle->record);
}

/* Returns the number of the step of the request, for people: it may rise by more than 1, or begin again. */
static int64_t number_of_step(const struct hvd_context *context, const struct hvd_handle *handle)
{
    bool none = reports_steps(context) && !steps_of(context);
    return none ? 1 : page_step(&context->page, handle->record);
}

/* `found`: in a tensor of this rank; NULL: in a result. */
static void begin(struct comm *comm, const struct hvd_handle *handle, const struct found *found)
{
    struct nonfinite *state = &comm->context->nonfinite;
    state->spreading = true;
    state->own = found ? found->worst : ALL_FINITE;
    state->name = page_name_of(&comm->context->page, handle->record);
    state->record = handle->record;
    state->process_set = comm->id;
    state->began = number_of_step(comm->context, handle);
    state->round = steps_before(comm->context, handle);
    state->wrong = state->finite = 0;
    state->lasted = -1; /* the round in which it has begun does not count: results may be used in the next */
    if (found && handle->request.count > 1)
        snprintf(state->where, sizeof state->where, "tensor %d of %s", found->tensor, handle->name);
    else
        snprintf(state->where, sizeof state->where, "%s", handle->name);
}

/* Returns true if the name was not warned of, and may be. */
static bool is_new(struct hvd_context *context, uint32_t name)
{
    struct nonfinite *state = &context->nonfinite;
    for (int i = 0; i < state->warned_count; i++) {
        if (state->warned[i] == name)
            return false;
    }
    if (state->warned_count == NONFINITE_WARNED) {
        if (!state->is_full)
            log_warning(context->placement.rank,
                        "NaN or infinity has begun here under %d names; under others it is only counted",
                        NONFINITE_WARNED);
        state->is_full = true;
        return false;
    }
    state->warned[state->warned_count++] = name;
    return true;
}

/* Warns of the number that has begun on this rank; `what` is its end: who gets it. */
static void warn(struct hvd_context *context, const char *what)
{
    struct nonfinite *state = &context->nonfinite;
    char when[40] = "", whose[40] = "every rank";
    if (!is_new(context, state->name))
        return;
    if (state->began)
        snprintf(when, sizeof when, " at step %lld", (long long)state->began);
    if (state->process_set)
        snprintf(whose, sizeof whose, "every rank of process set %d", state->process_set);
    page_set_nan(&context->page, state->where, state->began);
    log_warning(context->placement.rank, "%s in this rank's input of %s%s, before it was reduced; %s %s",
                state->own == HAS_NAN ? "NaN" : "infinity", state->where, when, whose, what);
}

/* Returns true if a number that was not finite may have caused another one in this step, which computes with
 * the results of the step before, but not with those of earlier ones, whose names may come rarely. If no
 * steps are reported, it may until a finite result ends it. */
static bool may_cause(const struct hvd_context *context, uint64_t steps)
{
    const struct nonfinite *state = &context->nonfinite;
    return state->spreading && (!reports_steps(context) || steps <= state->last + 1);
}

/* Returns true if an input begins another round: a step, or if none are reported a use of the name with which
 * it began, or if that can't come again an input that is not finite either. */
static bool begins_round(const struct hvd_context *context, const struct hvd_handle *handle, bool finite)
{
    const struct nonfinite *state = &context->nonfinite;
    if (reports_steps(context))
        return steps_before(context, handle) > state->round;
    if (page_has_name(&context->page, state->name))
        return page_name_of(&context->page, handle->record) == state->name;
    return !finite;
}

/* Most inputs of the next rounds are computed from a number that began here, unless it was left out, or
 * nothing is computed from it. Judges the round that has ended, and returns true if the number has just
 * lasted long enough for an alarm; `next`: steps before the round that begins. */
static bool judge_round(struct hvd_context *context, uint64_t next)
{
    struct nonfinite *state = &context->nonfinite;
    bool spreads = state->lasted < 0 || state->wrong > state->finite;
    state->round = next;
    state->wrong = state->finite = 0;
    if (!spreads)
        state->spreading = false;
    return spreads && ++state->lasted == (atomic_load(&context->steps.expected) ? 1 : LASTING);
}

/* No further input ends the last round. If steps are reported it is whole once its own was; otherwise it
 * shows at most that nothing was wrong any longer, e.g. in an evaluation after training. A name that can't
 * come again makes no rounds. */
void nonfinite_end(struct hvd_context *context)
{
    struct nonfinite *state = &context->nonfinite;
    bool reports = reports_steps(context);
    assert(context_is_held(context));
    if (!state->spreading || !state->own || (!reports && !page_has_name(&context->page, state->name)))
        return;
    if (!reports || steps_of(context) > state->round)
        judge_round(context, steps_of(context));
    else if (state->finite && !state->wrong)
        state->spreading = false;
    if (state->spreading && state->lasted > 0)
        warn(context, "got it, and most inputs were not finite until the end");
}

/* Returns true if a finite result shows that what has begun does not spread: it is of a later request of the
 * same name, or, if that can't come again (a number, a name without an id), one of many in a row. One alone
 * may be of the same step. */
static bool is_ended_by(struct hvd_context *context, const struct hvd_handle *handle)
{
    struct nonfinite *state = &context->nonfinite;
    if (page_has_name(&context->page, state->name))
        return page_name_of(&context->page, handle->record) == state->name && handle->record != state->record;
    return ++state->finite_results == LASTING && !reports_steps(context);
}

static void note_input(struct comm *comm, const struct hvd_handle *handle, const struct found *found)
{
    struct hvd_context *context = comm->context;
    struct nonfinite *state = &context->nonfinite;
    bool finite = found->worst == ALL_FINITE;
    if (finite && !state->spreading)
        return;
    if (state->spreading && state->own && begins_round(context, handle, finite) &&
        judge_round(context, steps_before(context, handle)))
        warn(context, "gets it now");
    if (!finite) {
        uint64_t steps = steps_before(context, handle);
        counter_add(&handle->counters->nonfinite, found->tensors);
        if (!may_cause(context, steps))
            begin(comm, handle, found);
        state->last = steps;
        state->finite_results = 0;
    }
    state->wrong += found->tensors;
    state->finite += found->checked - found->tensors;
}

static void note_result(struct comm *comm, const struct hvd_handle *handle, const struct found *found)
{
    struct hvd_context *context = comm->context;
    struct nonfinite *state = &context->nonfinite;
    bool finite = found->worst == ALL_FINITE;
    bool is_part = operation_table[handle->request.operation].result == RESULT_part;
    if (finite && (!state->spreading || (state->own && is_part))) /* another rank got what began here */
        return;
    if (finite) {
        state->spreading = !is_ended_by(context, handle);
        return;
    }
    uint64_t steps = steps_before(context, handle);
    if (!may_cause(context, steps))
        begin(comm, handle, NULL);
    state->last = steps;
    state->finite_results = 0;
}

static void note(struct comm *comm, const struct hvd_handle *handle, const struct found *found,
                 bool is_result)
{
    if (is_result)
        note_result(comm, handle, found);
    else
        note_input(comm, handle, found);
}

/* ---- where it is looked for ---------------------------------------------------------------------------- */

/* The input of a reducescatter is one block for each rank, of rows of all tensors; its output has results
 * between the room for the blocks of lower and of higher ranks. Other vectors have a span for each tensor. */
static COLD void find_in_batch(const struct running_batch *running, const struct vector *vector, int blocks,
                               int room, size_t limit)
{
    const struct collective *collective = &running->collective;
    int next = room, stride = vector->count / blocks;
    bool is_result = vector == &collective->output;
    for (int i = 0; i < running->count; i++) {
        const struct hvd_handle *handle = running->handles[i];
        struct found found = {0};
        if (!handle->counters) /* a stand-in: this rank has joined */
            return;
        for (int t = 0; t < handle->request.count; t++) {
            if (!batch_includes(running, handle, t))
                continue;
            enum finiteness worst = ALL_FINITE;
            bool is_checked = false;
            for (int block = 0; block < blocks; block++) {
                const struct span *span = &vector->spans[next + block * stride];
                if (span->length > limit)
                    continue;
                enum finiteness has = finiteness_of(collective->dtype, span, 1, limit);
                worst = has > worst ? has : worst;
                is_checked = true;
            }
            if (is_checked)
                add(&found, worst, t);
            next++;
        }
        note(running->comm, handle, &found, is_result);
    }
}

/* Another request that shares memory with an `apart` one may write it before this one starts. */
static void search_ahead(const struct nonfinite *state, struct hvd_handle *handle)
{
    const hvd_request *request = &handle->request;
    handle->searched = true;
    if (request->count != 1 || handle->pending.apart || handle->memory != &memory_host ||
        operation_table[request->operation].result == RESULT_part)
        return;
    struct span span = {request->inputs[0].data, tensor_bytes(&request->inputs[0])};
    handle->is_finite = operation_reduces(request->operation) &&
                        !finiteness_of(request->inputs[0].dtype, &span, 1, state->limit);
}

void nonfinite_search_ahead(struct comm *comm)
{
    const struct nonfinite *state = &comm->context->nonfinite;
    const struct pending *only = coordinator_only(comm->coordinator);
    struct hvd_handle *handle = only ? only->owner : NULL;
    assert(context_is_held(comm->context));
    if (handle && !handle->searched && state->limit)
        search_ahead(state, handle);
}

/* Almost all batches are finite: only in others, and after them, is each tensor judged. */
void nonfinite_check_batch(const struct running_batch *running, bool is_result)
{
    const struct collective *collective = &running->collective;
    const struct nonfinite *state = &running->comm->context->nonfinite;
    const struct vector *vector = is_result ? &collective->output : &collective->input;
    bool parted = operation_table[collective->operation].result == RESULT_part;
    int blocks = parted && !is_result ? collective->size : 1, room = parted && is_result;
    size_t limit = state->limit / (size_t)blocks;
    assert(context_is_held(running->comm->context));
    if (!state->spreading && !is_result && running->count == 1 && running->handles[0]->is_finite)
        return;
    if (state->spreading ||
        finiteness_of(collective->dtype, vector->spans + room, vector->count - 2 * room, limit) != ALL_FINITE)
        find_in_batch(running, vector, blocks, room, limit);
}

void nonfinite_check_request(struct comm *comm, const struct hvd_handle *handle, bool is_result)
{
    const hvd_request *request = &handle->request;
    bool is_joined = operation_table[request->operation].result == RESULT_joined;
    const hvd_tensor *tensors = is_result && is_joined          ? handle->results
                                : is_result && request->outputs ? request->outputs
                                                                : request->inputs;
    struct found found = {0};
    size_t limit = comm->context->nonfinite.limit;
    assert(context_is_held(comm->context));
    if (!handle->counters) /* a stand-in: this rank has joined */
        return;
    if (is_result && is_joined && limit <= SIZE_MAX / (size_t)comm->size)
        limit *= (size_t)comm->size;
    for (int i = 0; i < request->count; i++) {
        struct span span = {tensors[i].data, tensor_bytes(&tensors[i])};
        if (span.data && span.length <= limit)
            add(&found, finiteness_of(tensors[i].dtype, &span, 1, limit), i);
    }
    note(comm, handle, &found, is_result);
}
