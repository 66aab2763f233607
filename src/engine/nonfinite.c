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

#define SMALL_BYTES ((size_t)16 << 10)
/* What is only moved is read at no other time, so that a search costs a larger share. */
#define MOVED_BYTES ((size_t)1 << 10)

/* Keeps a rare case from taking registers of the common one. */
#define COLD __attribute__((noinline, cold))

/* The search for a loss scale, which starts at 2^16 and is halved in each step with an infinity, has ended
 * after this many of them. */
#define LASTING 25

hvd_code nonfinite_open(struct hvd_context *context, hvd_status *status)
{
    const char *rule = context->settings.check_nonfinite;
    bool small = strcmp(rule, "small") == 0, all = strcmp(rule, "all") == 0;
    if (!small && !all && strcmp(rule, "off") != 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "HOROVOD_CHECK_NONFINITE=%s: it is 'small' (tensors of at most 16 KiB), 'all' or "
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
    return steps_of(context) != 0;
}

/* Returns how many steps had been reported when the request was submitted. By now its own may have been. */
static uint64_t steps_before(const struct hvd_context *context, const struct hvd_handle *handle)
{
    return page_steps_before(&context->page, handle->record);
}

/* Such values may be NaN by design, e.g. in the buffers of a model, and don't show what is computed from
 * others. */
static bool only_moves(hvd_operation operation)
{
    return operation == HVD_BROADCAST || operation == HVD_ALLTOALL;
}

/* Returns true if later requests of the same name show whether the number is still there. */
static bool comes_again(const struct hvd_context *context, const struct nonfinite_suspect *suspect)
{
    return !only_moves(suspect->operation) && page_has_name(&context->page, suspect->name);
}

static bool has_name(const struct hvd_context *context, const struct nonfinite_suspect *suspect,
                     uint32_t name)
{
    return page_has_name(&context->page, suspect->name) && name == suspect->name;
}

static bool is_of(const struct hvd_context *context, const struct nonfinite_suspect *suspect,
                  const struct hvd_handle *handle)
{
    return (handle->record && handle->record == suspect->record) ||
           has_name(context, suspect, page_name_of(&context->page, handle->record));
}

static void drop(struct nonfinite *state, int which)
{
    state->count--;
    memmove(&state->suspects[which], &state->suspects[which + 1],
            (size_t)(state->count - which) * sizeof *state->suspects);
}

/* Nothing is computed from the numbers of this suspect. */
static void acquit(struct hvd_context *context, int which)
{
    struct nonfinite *state = &context->nonfinite;
    const struct nonfinite_suspect *suspect = &state->suspects[which];
    if (page_has_name(&context->page, suspect->name))
        state->harmless[state->harmless_count++ % NONFINITE_HARMLESS] =
            (struct nonfinite_name){suspect->name, suspect->uses};
    drop(state, which);
}

static void acquit_all(struct hvd_context *context)
{
    while (context->nonfinite.count)
        acquit(context, 0);
}

/* Returns true if the name was acquitted and has not been finite since. */
static bool is_harmless(struct hvd_context *context, const struct hvd_handle *handle)
{
    struct nonfinite *state = &context->nonfinite;
    uint32_t name = page_name_of(&context->page, handle->record), uses = page_uses(&context->page, name);
    unsigned known = state->harmless_count < NONFINITE_HARMLESS ? state->harmless_count : NONFINITE_HARMLESS;
    for (unsigned i = 0; uses && i < known; i++) {
        struct nonfinite_name *harmless = &state->harmless[i];
        if (harmless->name != name)
            continue;
        bool goes_on = uses - harmless->uses <= 1;
        harmless->uses = uses;
        harmless->name = goes_on ? name : 0;
        return goes_on;
    }
    return false;
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
static void warn(struct hvd_context *context, const struct nonfinite_suspect *suspect, const char *what)
{
    char when[40] = "", whose[40] = "every rank";
    if (!is_new(context, suspect->name))
        return;
    /* A name may have been used more than once in the first step. */
    int64_t began = !suspect->steps && reports_steps(context) ? 1 : suspect->began;
    if (began)
        snprintf(when, sizeof when, " at step %lld", (long long)began);
    if (suspect->process_set)
        snprintf(whose, sizeof whose, "every rank of process set %d", suspect->process_set);
    page_set_nan(&context->page, suspect->where, began);
    log_warning(context->placement.rank, "%s in this rank's input of %s%s, before it was %s; %s %s",
                suspect->own == HAS_NAN ? "NaN" : "infinity", suspect->where, when,
                operation_reduces(suspect->operation) ? "reduced" : "sent", whose, what);
}

/* Adds a number to those from which others may have been computed; `steps` had been reported before it.
 * Returns NULL if there are too many. */
static struct nonfinite_suspect *add_suspect(const struct comm *comm, hvd_operation operation, uint32_t name,
                                             uint64_t steps)
{
    struct hvd_context *context = comm->context;
    struct nonfinite *state = &context->nonfinite;
    if (state->count == NONFINITE_SUSPECTS)
        return NULL;
    struct nonfinite_suspect *suspect = &state->suspects[state->count++];
    *suspect = (struct nonfinite_suspect){.operation = operation,
                                          .name = name,
                                          .uses = page_uses(&context->page, name),
                                          .process_set = comm->id,
                                          .steps = steps,
                                          .round = steps,
                                          .lasted = -1};
    return suspect;
}

static void note_time(struct nonfinite *state, uint64_t steps)
{
    state->last = steps > state->last ? steps : state->last;
    state->finite_results = 0;
}

/* Adds a number in this rank's input, and lets the others know of it, unless its name is a suspect. */
static void suspect_own(struct comm *comm, const struct hvd_handle *handle, const struct found *found)
{
    struct hvd_context *context = comm->context;
    struct nonfinite *state = &context->nonfinite;
    uint32_t name = page_name_of(&context->page, handle->record);
    uint64_t steps = steps_before(context, handle);
    note_time(state, steps);
    for (int i = 0; i < state->count; i++) {
        if (is_of(context, &state->suspects[i], handle)) {
            state->suspects[i].uses = page_uses(&context->page, name);
            return;
        }
    }
    coordinator_found(comm->coordinator, &handle->pending);
    struct nonfinite_suspect *suspect = add_suspect(comm, handle->request.operation, name, steps);
    if (!suspect)
        return;
    suspect->own = found->worst;
    suspect->record = handle->record;
    suspect->began = page_step(&context->page, handle->record);
    if (handle->request.count > 1)
        snprintf(suspect->where, sizeof suspect->where, "tensor %d of %s", found->tensor, handle->name);
    else
        snprintf(suspect->where, sizeof suspect->where, "%s", handle->name);
}

void nonfinite_found(struct comm *comm, int rank, hvd_operation operation, uint32_t name)
{
    struct hvd_context *context = comm->context;
    struct nonfinite *state = &context->nonfinite;
    uint64_t steps = steps_of(context);
    assert(context_is_held(context));
    if (!state->limit || rank == comm->rank)
        return;
    note_time(state, steps);
    for (int i = 0; i < state->count; i++) {
        if (has_name(context, &state->suspects[i], name))
            return;
    }
    add_suspect(comm, operation, name, steps);
}

/* Returns true if an input begins another round: a step, or if none are reported a use of the name with which
 * it began, or if that can't come again an input that is not finite either. */
static bool begins_round(const struct hvd_context *context, const struct nonfinite_suspect *suspect,
                         const struct hvd_handle *handle, bool finite)
{
    if (reports_steps(context))
        return steps_before(context, handle) > suspect->round;
    return comes_again(context, suspect) ? is_of(context, suspect, handle) : !finite;
}

/* Results of the round in which it has begun may be used in the next. */
static bool spreads(const struct nonfinite_suspect *suspect)
{
    return suspect->lasted < 0 || suspect->wrong > suspect->finite;
}

/* Returns after how many rounds in which it has spread a number is an alarm. One is enough if steps that are
 * left out are not reported, and what was found in them has been ended by a finite result. */
static int rounds_until_alarm(struct hvd_context *context, const struct nonfinite_suspect *suspect)
{
    bool updates = atomic_load(&context->steps.expected) && reports_steps(context);
    return updates && comes_again(context, suspect) ? 1 : LASTING;
}

/* Judges the suspects whose round has ended. One from which most inputs may have been computed explains the
 * later ones. */
static void judge(struct hvd_context *context, const struct hvd_handle *handle, bool finite)
{
    struct nonfinite *state = &context->nonfinite;
    uint64_t steps = steps_before(context, handle);
    if (reports_steps(context) && steps > state->last + 1) /* a whole step was finite */
        acquit_all(context);
    for (int i = 0; i < state->count;) {
        struct nonfinite_suspect *suspect = &state->suspects[i];
        if (!begins_round(context, suspect, handle, finite)) {
            i++;
        } else if (!spreads(suspect)) {
            acquit(context, i);
        } else {
            suspect->round = steps;
            suspect->wrong = suspect->finite = 0;
            i++;
            if (++suspect->lasted > 0)
                state->count = i;
            if (i == 1 && suspect->own && suspect->lasted >= rounds_until_alarm(context, suspect))
                warn(context, suspect, "gets it now");
        }
    }
}

/* No further input ends the last round. If steps are reported it is whole once its own was; otherwise it
 * shows at most that nothing was wrong any longer, e.g. in an evaluation after training. A name that can't
 * come again makes no rounds. */
void nonfinite_end(struct hvd_context *context)
{
    const struct nonfinite *state = &context->nonfinite;
    assert(context_is_held(context));
    for (int i = 0; i < state->count; i++) {
        const struct nonfinite_suspect *suspect = &state->suspects[i];
        bool whole = !reports_steps(context) || steps_of(context) > suspect->round;
        if (whole ? !spreads(suspect) : suspect->finite && !suspect->wrong)
            continue;
        if (suspect->own && comes_again(context, suspect) && suspect->lasted + whole > 0)
            warn(context, suspect, "got it, and most inputs were not finite until the end");
        return;
    }
}

static void note_input(struct comm *comm, const struct hvd_handle *handle, const struct found *found)
{
    struct hvd_context *context = comm->context;
    struct nonfinite *state = &context->nonfinite;
    bool finite = found->worst == ALL_FINITE;
    if (finite && !state->count)
        return;
    judge(context, handle, finite);
    if (!finite) {
        if (!only_moves(handle->request.operation))
            counter_add(&handle->counters->nonfinite, found->tensors);
        if (is_harmless(context, handle))
            return;
        suspect_own(comm, handle, found);
    }
    for (int i = 0; i < state->count; i++) {
        state->suspects[i].wrong += found->tensors;
        state->suspects[i].finite += found->checked - found->tensors;
    }
}

/* A finite result of a later request of the same name shows that the number is no longer there. So does a row
 * of finite results as long as there are names, since a whole step has gone by: names may come once only. */
static void note_finite_result(struct hvd_context *context, const struct hvd_handle *handle)
{
    struct nonfinite *state = &context->nonfinite;
    enum result result = operation_table[handle->request.operation].result;
    if (result == RESULT_part ||
        result == RESULT_exchanged) /* another rank may have got what is not finite */
        return;
    for (int i = state->count - 1; i >= 0; i--) {
        const struct nonfinite_suspect *suspect = &state->suspects[i];
        if (comes_again(context, suspect) && is_of(context, suspect, handle) &&
            handle->record != suspect->record)
            drop(state, i);
    }
    if (!state->count || reports_steps(context))
        return;
    unsigned names = page_names(&context->page);
    if (++state->finite_results >= (names > LASTING ? names : LASTING))
        acquit_all(context);
}

static void note(struct comm *comm, const struct hvd_handle *handle, const struct found *found,
                 bool is_result)
{
    if (!is_result)
        note_input(comm, handle, found);
    else if (found->checked && found->worst == ALL_FINITE)
        note_finite_result(comm->context, handle);
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
    if (!state->count && running->count == 1 && running->handles[0]->is_finite)
        return;
    if (state->count ||
        finiteness_of(collective->dtype, vector->spans + room, vector->count - 2 * room, limit) != ALL_FINITE)
        find_in_batch(running, vector, blocks, room, limit);
}

/* Returns the tensors of the request that have what this rank gives, or gets; NULL: it does not. */
static const hvd_tensor *tensors_of(const struct comm *comm, const struct hvd_handle *handle, bool is_result)
{
    const hvd_request *request = &handle->request;
    if (request->operation == HVD_BROADCAST && (comm->rank == request->root) == is_result)
        return NULL;
    if (!is_result)
        return request->inputs;
    if (handle->results && (handle->results[0].data || !request->outputs))
        return handle->results;
    return request->outputs ? request->outputs : request->inputs;
}

void nonfinite_check_request(struct comm *comm, const struct hvd_handle *handle, bool is_result)
{
    const hvd_request *request = &handle->request;
    const hvd_tensor *tensors = tensors_of(comm, handle, is_result);
    struct found found = {0};
    size_t limit = comm->context->nonfinite.limit;
    assert(context_is_held(comm->context));
    if (!handle->counters || !tensors) /* a stand-in: this rank has joined */
        return;
    if (limit == SMALL_BYTES && !operation_reduces(request->operation))
        limit = MOVED_BYTES;
    for (int i = 0; i < request->count; i++) {
        struct span span = {tensors[i].data, tensor_bytes(&tensors[i])};
        if (span.data && span.length <= limit)
            add(&found, finiteness_of(tensors[i].dtype, &span, 1, limit), i);
    }
    if (!comm->context->nonfinite.count && found.worst == ALL_FINITE)
        return;
    note(comm, handle, &found, is_result);
}
