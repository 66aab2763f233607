/* run.c - one phase on one rank: submits, waits, compares. See job.h. */
#include "differential/job.h"

#include "base/clock.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WAIT_SECONDS = 60, MOST_DESCRIBED = 6 };

/* One step on this rank, in flight. */
struct running {
    const struct program_step *step;
    hvd_request request;
    hvd_tensor inputs[TENSORS], outputs[TENSORS];
    int64_t in_shapes[TENSORS][DIMENSIONS + 1], out_shapes[TENSORS][DIMENSIONS + 1], splits[RANKS];
    hvd_handle *handle;
    atomic_int done; /* 1: `done` was called */
    hvd_status status;
    bool submitted;
};

struct phase_run {
    struct runner *runner;
    int number;
    const struct phase *phase;
    const struct reference *reference;
    char *arena;
    struct running running[STEPS];
};

static void describe(const struct phase *phase, const struct program_step *step)
{
    char text[4096] = "";
    step_describe(phase, step, text, sizeof text);
    fprintf(stderr, "\n  %s", text);
}

/* Describes the steps of the same phase, if they are few. */
static void describe_others(const struct phase_run *run, const struct program_step *step)
{
    const bool *chosen = &run->runner->job->chosen[run->phase->steps[0].number];
    int count = 0;
    for (int i = 0; i < run->phase->step_count; i++)
        count += chosen[i];
    for (int i = 0; count <= MOST_DESCRIBED && i < run->phase->step_count; i++)
        if (chosen[i] && step != &run->phase->steps[i])
            describe(run->phase, &run->phase->steps[i]);
    fprintf(stderr, "\n");
}

static _Noreturn void report(const struct phase_run *run, const struct program_step *step, const char *format,
                             ...) __attribute__((format(printf, 3, 4)));

static _Noreturn void report(const struct phase_run *run, const struct program_step *step, const char *format,
                             ...)
{
    va_list arguments;
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&once); /* the first one ends the process */
    fprintf(stderr, "FAILED on rank %d, phase %d: ", run->runner->member->rank, run->number);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    if (step)
        describe(run->phase, step);
    describe_others(run, step);
    job_print(run->runner->job);
    abort();
}

/* ---- process sets ---------------------------------------------------------------------------------------
 */

static void add_set(struct runner *runner, const struct set *set)
{
    int32_t ranks[RANKS], *id = &runner->ids[set->generation];
    for (int i = 0; i < set->size; i++)
        ranks[i] = set->ranks[i];
    hvd_context *context = runner->member->context;
    if (!set->opened) {
        CHECK_OK(hvd_process_set_add(context, ranks, set->size, id, &check_status));
    } else if (has_rank(set->members, runner->member->rank)) {
        *id = HVD_OPENED_SETS + set->generation;
        CHECK_OK(hvd_process_set_open(context, *id, ranks, set->size, &check_status));
    }
}

static const struct set *find_set(const struct phase *phase, int generation)
{
    for (int i = 0; phase && i < phase->set_count; i++)
        if (phase->sets[i].generation == generation)
            return &phase->sets[i];
    return NULL;
}

static void change_sets(struct runner *runner, const struct phase *before, const struct phase *phase)
{
    for (int i = 1; before && i < before->set_count; i++) {
        const struct set *set = &before->sets[i];
        bool knows = !set->opened || has_rank(set->members, runner->member->rank);
        if (!find_set(phase, set->generation) && knows)
            CHECK_OK(
                hvd_process_set_remove(runner->member->context, runner->ids[set->generation], &check_status));
    }
    for (int i = 1; i < phase->set_count; i++)
        if (!find_set(before, phase->sets[i].generation))
            add_set(runner, &phase->sets[i]);
}

/* ---- requests -------------------------------------------------------------------------------------------
 */

static void note_done(void *argument, const hvd_status *status)
{
    struct running *running = argument;
    running->status = *status;
    atomic_store(&running->done, 1);
}

static void describe_tensor(const struct phase_run *run, struct running *running, int t)
{
    const struct program_step *step = running->step;
    const struct tensor *tensor = &step->tensors[t];
    int rank = run->runner->member->rank;
    int64_t *in = running->in_shapes[t], *out = running->out_shapes[t];
    for (int i = 0; i < tensor->ndim; i++)
        in[i] = out[i] = i ? tensor->extents[i] : tensor->rows[rank];
    if (tensor->ndim)
        out[0] = output_rows(run->phase, step, tensor, rank) +
                 (step->fate == FATE_MISFIT && rank == step->culprit);
    running->inputs[t] = tensor_of(run->arena + tensor->input[rank], tensor->type, in, tensor->ndim);
    running->outputs[t] = tensor_of(run->arena + tensor->output[rank], tensor->type, out, tensor->ndim);
}

/* This rank's mistake, in the last tensor. */
static void differ(struct running *running)
{
    static const double three = 3, five = 5;
    const struct program_step *step = running->step;
    hvd_request *request = &running->request;
    int last = request->count - 1;
    hvd_tensor *tensor = &running->inputs[last];
    int64_t *shape = running->in_shapes[last];
    bool own_rows = step->operation == HVD_ALLGATHER || step->operation == HVD_ALLTOALL;
    bool reduces = operation_reduces(step->operation), logical = tensor->dtype == HVD_BOOL;
    int axis = own_rows ? 1 : 0;
    bool finite = isfinite(step->prescale) && isfinite(step->postscale); /* else integers are refused */
    if (step->difference == DIFFERS_TYPE && reduces && step->reduction == HVD_ADASUM)
        tensor->dtype = tensor->dtype == HVD_FLOAT16 ? HVD_BFLOAT16 : HVD_FLOAT16;
    else if (step->difference == DIFFERS_TYPE && finite)
        tensor->dtype = tensor->dtype == HVD_UINT8 ? HVD_INT8 : HVD_UINT8;
    else if (step->difference == DIFFERS_SHAPE && tensor->ndim > axis && shape[axis] > 0)
        shape[axis]--;
    else if (step->difference == DIFFERS_FACTOR && reduces && !logical && !request->grouped)
        request->prescale = step->prescale == 3 ? &five : &three;
    else if (step->difference == DIFFERS_ARGUMENT && step->operation == HVD_ALLREDUCE &&
             step->reduction != HVD_PRODUCT)
        request->reduction = HVD_PRODUCT;
    else
        shape[tensor->ndim++] = 1;
}

/* 1 may be left out. */
static const double *factor_of(struct runner *runner, const double *factor)
{
    return *factor == 1 && random_chance(&runner->state, 50) ? NULL : factor;
}

static void make_request(const struct phase_run *run, struct running *running)
{
    const struct program_step *step = running->step;
    struct runner *runner = run->runner;
    const struct set *set = &run->phase->sets[step->set];
    hvd_request *request = &running->request;
    *request = request_of(step->operation, step->named ? step->name : NULL, running->inputs);
    request->count = step->count;
    request->grouped = step->grouped;
    request->reduction = step->reduction;
    request->prescale = factor_of(runner, &step->prescale);
    request->postscale = factor_of(runner, &step->postscale);
    request->root = step->root;
    request->priority = step->priority;
    request->process_set = step->set ? runner->ids[set->generation] : 0;
    for (int t = 0; t < step->count; t++)
        describe_tensor(run, running, t);
    request->outputs = step->given ? running->outputs : NULL;
    for (int i = 0; i < set->size; i++)
        running->splits[i] = step->splits[runner->member->rank][set->ranks[i]];
    request->splits = step->operation == HVD_ALLTOALL && !step->even ? running->splits : NULL;
    if (step->fate == FATE_DIFFERS && step->culprit == runner->member->rank)
        differ(running);
}

static hvd_code expected_code(const struct phase_run *run, const struct program_step *step)
{
    bool culprit = step->culprit == run->runner->member->rank;
    switch (step->fate) {
    case FATE_RUNS:
        return HVD_OK;
    case FATE_REFUSED:
        return HVD_INVALID_ARGUMENT;
    case FATE_DIFFERS:
    case FATE_ABSENT:
        return HVD_MISMATCH;
    case FATE_MISFIT:
        return culprit ? HVD_MISMATCH : HVD_OK;
    }
    return HVD_OK;
}

/* ---- results --------------------------------------------------------------------------------------------
 */

static void check_element(const struct phase_run *run, const struct program_step *step, int t, int64_t i,
                          const char *is, const char *should)
{
    const struct tensor *tensor = &step->tensors[t];
    char text[2][40] = {"", ""};
    size_t size = hvd_dtype_size(tensor->type);
    int rank = run->runner->member->rank;
    if (!memcmp(is, should, size) || reference_accepts(run->reference, step, tensor, rank, i, is, should))
        return;
    for (size_t at = 0; at < size; at++) {
        snprintf(text[0] + 2 * at, 3, "%02x", (unsigned char)is[at]);
        snprintf(text[1] + 2 * at, 3, "%02x", (unsigned char)should[at]);
    }
    double got = number_get(tensor->type, is), wanted = number_get(tensor->type, should);
    report(run, step, "tensor %d, element %lld is %.17g (bytes %s), not %.17g (%s)", t, (long long)i, got,
           text[0], wanted, text[1]);
}

static void check_result(const struct phase_run *run, struct running *running, int t,
                         const hvd_tensor *result)
{
    const struct program_step *step = running->step;
    const struct tensor *tensor = &step->tensors[t];
    int64_t elements = output_elements(run->phase, step, tensor, run->runner->member->rank);
    size_t size = hvd_dtype_size(tensor->type);
    if (result->ndim != tensor->ndim || result->dtype != tensor->type)
        report(run, step, "the result has %d dimensions and type %s", result->ndim,
               hvd_dtype_name(result->dtype));
    for (int i = 0; i < result->ndim; i++)
        if (result->shape[i] != running->out_shapes[t][i])
            report(run, step, "extent %d of result %d is %lld, not %lld", i, t, (long long)result->shape[i],
                   (long long)running->out_shapes[t][i]);
    const char *should = run->reference->results[run->runner->member->rank][step - run->phase->steps][t];
    for (int64_t i = 0; i < elements; i++)
        check_element(run, step, t, i, (const char *)result->data + (size_t)i * size,
                      should + (size_t)i * size);
}

static void check_received(const struct phase_run *run, const struct program_step *step,
                           const hvd_tensor *received)
{
    const struct set *set = &run->phase->sets[step->set];
    for (int i = 0; i < set->size; i++) {
        int64_t should = step->splits[set->ranks[i]][run->runner->member->rank];
        if (((const int64_t *)received->data)[i] != should)
            report(run, step, "%lld rows came from rank %d, not %lld",
                   (long long)((const int64_t *)received->data)[i], set->ranks[i], (long long)should);
    }
}

/* Results that are the engine's: of a handle, or those that hvd_run handed out. */
static void check_results(const struct phase_run *run, struct running *running, const hvd_tensor *ran)
{
    const struct program_step *step = running->step;
    int first = has_output(step) ? step->count : 0,
        count = step->count * operation_table[step->operation].results;
    for (int t = first; t < count; t++) {
        hvd_tensor result;
        if (ran)
            result = ran[t];
        else
            CHECK_OK(hvd_output(running->handle, t, &result, &check_status));
        if (t < step->count)
            check_result(run, running, t, &result);
        else
            check_received(run, step, &result);
    }
}

/* The last step that writes this byte. */
static const struct program_step *writer_of(const struct phase_run *run, size_t byte, int *t,
                                            int64_t *element)
{
    int rank = run->runner->member->rank;
    for (int i = run->phase->step_count - 1; i >= 0; i--) {
        const struct program_step *step = &run->phase->steps[i];
        if (!has_output(step) || !has_rank(step->by, rank) || expected_code(run, step) ||
            !run->running[i].submitted)
            continue;
        for (*t = step->count - 1; *t >= 0; --*t) {
            const struct tensor *tensor = &step->tensors[*t];
            size_t size = hvd_dtype_size(tensor->type), start = tensor->output[rank];
            size_t end = start + (size_t)output_elements(run->phase, step, tensor, rank) * size;
            *element = (int64_t)((byte - start) / size);
            if (byte >= start && byte < end)
                return step;
        }
    }
    return NULL;
}

static void check_arena(const struct phase_run *run)
{
    int rank = run->runner->member->rank, t;
    size_t bytes = run->phase->bytes[rank];
    const char *should = run->reference->after[rank];
    for (size_t at = 0; at < bytes; at++) {
        int64_t element;
        if (run->arena[at] == should[at])
            continue;
        const struct program_step *step = writer_of(run, at, &t, &element);
        if (!step)
            report(run, NULL, "byte %zu of the arena, which no step writes, was %02x and is %02x", at,
                   (unsigned char)should[at], (unsigned char)run->arena[at]);
        const struct tensor *tensor = &step->tensors[t];
        size_t start = tensor->output[rank] + (size_t)element * hvd_dtype_size(tensor->type);
        check_element(run, step, t, element, run->arena + start, should + start);
        at = start + hvd_dtype_size(tensor->type) - 1;
    }
}

/* ---- submitting and waiting -----------------------------------------------------------------------------
 */

static void check_code(const struct phase_run *run, const struct program_step *step, hvd_code code,
                       const hvd_status *status)
{
    if (code != expected_code(run, step))
        report(run, step, "ended with %s (%s), not %s", hvd_code_name(code), status->text,
               hvd_code_name(expected_code(run, step)));
}

/* At once, in this thread: where all ranks have one order, in which a join has no place. */
static void run_at_once(const struct phase_run *run, struct running *running)
{
    hvd_status status;
    hvd_tensor results[2 * TENSORS] = {0}, *handed_out = results;
    const struct program_step *step = running->step;
    int count = step->count * operation_table[step->operation].results, first = step->given ? step->count : 0;
    hvd_code code = hvd_run(run->runner->member->context, &running->request, handed_out, &status);
    check_code(run, step, code, &status);
    if (!code)
        check_results(run, running, results);
    for (int i = first; !code && i < count; i++)
        hvd_free(results[i].data);
}

static void start(const struct phase_run *run, struct running *running)
{
    struct runner *runner = run->runner;
    hvd_status status;
    make_request(run, running);
    running->submitted = true;
    bool refused = running->step->fate == FATE_REFUSED;
    if (run->phase->ordered && !run->phase->joiners && random_chance(&runner->state, 15)) {
        run_at_once(run, running);
        return;
    }
    bool calls = random_chance(&runner->state, 20);
    bool drops = calls && has_output(running->step) && random_chance(&runner->state, 50);
    if (calls) {
        running->request.done = note_done;
        running->request.done_argument = running;
    }
    hvd_code code =
        hvd_submit(runner->member->context, &running->request, drops ? NULL : &running->handle, &status);
    if (refused || code)
        check_code(run, running->step, code, &status);
    if (refused)
        running->handle = NULL;
    if (random_chance(&runner->state, 10))
        sched_yield();
}

static void await_call(const struct phase_run *run, struct running *running)
{
    int64_t until = clock_now() + WAIT_SECONDS * CLOCK_SECOND;
    while (!atomic_load(&running->done)) {
        if (clock_now() > until)
            report(run, running->step, "not done within %d seconds", WAIT_SECONDS);
        usleep(50);
    }
    check_code(run, running->step, running->status.code, &running->status);
}

static void end(const struct phase_run *run, struct running *running)
{
    hvd_status status;
    if (running->request.done && running->step->fate != FATE_REFUSED)
        await_call(run, running);
    if (!running->handle)
        return;
    hvd_code code = hvd_wait(running->handle, WAIT_SECONDS, &status);
    check_code(run, running->step, code, &status);
    if (!code)
        check_results(run, running, NULL);
    hvd_release(running->handle);
}

static void join(const struct phase_run *run)
{
    int32_t last;
    hvd_handle *handle;
    struct runner *runner = run->runner;
    const struct set *set = &run->phase->sets[run->phase->join_set];
    hvd_request request = {.struct_size = sizeof request, .operation = HVD_JOIN};
    request.process_set = run->phase->join_set ? runner->ids[set->generation] : 0;
    CHECK_OK(hvd_submit(runner->member->context, &request, &handle, &check_status));
    hvd_status status;
    hvd_code code = hvd_wait(handle, WAIT_SECONDS, &status);
    if (code)
        report(run, NULL, "join: %s: %s", hvd_code_name(code), status.text);
    CHECK_OK(hvd_joined_last(handle, &last, &check_status));
    hvd_release(handle);
    int none = 0;
    atomic_int *agreed = &runner->job->joined_last[run->number];
    if (!atomic_compare_exchange_strong(agreed, &none, last + 1) && none != last + 1)
        report(run, NULL, "rank %d joined last, but another rank received %d", last, none - 1);
    if (!has_rank(set->members, last))
        report(run, NULL, "rank %d, which joined last, is not in the set", last);
}

static void run_steps(struct phase_run *run)
{
    const struct phase *phase = run->phase;
    struct runner *runner = run->runner;
    int order[STEPS] = {0}, count = 0, rank = runner->member->rank;
    for (int i = 0; i < phase->step_count; i++) {
        if (!has_rank(phase->steps[i].by, rank) || !runner->job->chosen[phase->steps[i].number])
            continue;
        int at = phase->ordered ? count : (int)random_below(&runner->state, count + 1);
        order[count++] = order[at];
        order[at] = i;
    }
    for (int i = 0; i < count; i++)
        start(run, &run->running[order[i]]);
    if (phase->joiners && has_rank(phase->sets[phase->join_set].members, rank))
        join(run);
    for (int i = count - 1; i >= 0; i--) { /* from here on in another order */
        int other = (int)random_below(&runner->state, i + 1), which = order[other];
        order[other] = order[i];
        end(run, &run->running[which]);
    }
}

static char *make_arena(const struct phase *phase, size_t bytes)
{
    void *arena;
    if (phase->shared_memory)
        CHECK_OK(hvd_shared_alloc(bytes + 64, &arena, &check_status));
    else
        CHECK(posix_memalign(&arena, 64, bytes + 64) == 0, "out of memory");
    return arena;
}

void run_phase(struct runner *runner, int number)
{
    struct job *job = runner->job;
    const struct phase *phase = &job->phases[number];
    struct phase_run run = {.runner = runner, .number = number, .phase = phase};
    run.reference = reference_take(job, number);
    change_sets(runner, number ? &job->phases[number - 1] : NULL, phase);
    run.arena = make_arena(phase, phase->bytes[runner->member->rank]);
    phase_fill(phase, runner->member->rank, run.arena);
    for (int i = 0; i < phase->step_count; i++)
        run.running[i].step = &phase->steps[i];
    run_steps(&run);
    check_arena(&run);
    reference_let_go(job, number);
    if (phase->shared_memory)
        hvd_shared_free(run.arena);
    else
        free(run.arena);
}
