/* steps.c - hvd_step, hvd_optimizer_step and hvd_get_progress. Any thread.
 *
 * Several sources may report every step: two optimizers, or an optimizer and the program. A step is counted
 * when a source reports that has reported since the last step was counted. So each step is counted once, by
 * whichever reports most often; their order does not matter, nor does it if one of them begins later, or
 * stops. */
#include "engine/steps.h"

#include "base/clock.h"
#include "base/status.h"
#include "engine/context.h"
#include "watch/page_steps.h"

#define PROGRAM 0 /* as a source; optimizers are the hashes of their names */

/* Of the sources without a place one is remembered, another one after 1, 2, 4, 8, ... reports: so those that
 * take the place of sources which have stopped are noticed after a while (Brent's search for a cycle). */
static bool comes_again(struct steps *steps, uint64_t source)
{
    bool again = steps->others && steps->other == source;
    uint64_t count = ++steps->others;
    if ((count & (count - 1)) == 0)
        steps->other = source;
    return again;
}

static bool begins_another(struct steps *steps, uint64_t source)
{
    bool another = !steps->source_count;
    for (int i = 0; i < steps->source_count && !another; i++)
        another = steps->sources[i] == source;
    if (!another && steps->source_count == STEP_SOURCES)
        another = comes_again(steps, source);
    if (another) {
        steps->source_count = 0;
        steps->others = 0;
    }
    if (steps->source_count < STEP_SOURCES)
        steps->sources[steps->source_count++] = source;
    return another;
}

/* `number` -1: the next one. */
static void report(struct hvd_context *context, uint64_t source, int64_t number, uint64_t samples)
{
    struct steps *steps = &context->steps;
    pthread_mutex_lock(&steps->lock);
    bool counts = begins_another(steps, source);
    if (number >= 0)
        steps->number = number;
    else if (counts)
        steps->number++;
    if (counts)
        page_stepped(&context->page, ++steps->count, steps->number, clock_now());
    if (number >= 0 || samples)
        page_describe_step(&context->page, steps->number, samples);
    pthread_mutex_unlock(&steps->lock);
}

hvd_code hvd_step(hvd_context *context, int64_t step, int64_t samples, hvd_status *status)
{
    TRY(context_check_process(context, status));
    if (step < -1 || step > INT64_MAX / 2 || samples < 0)
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "a step needs a number from 0 to %lld (or -1, the next one) and no negative number of samples, "
            "not %lld and %lld",
            (long long)(INT64_MAX / 2), (long long)step, (long long)samples);
    report(context, PROGRAM, step, (uint64_t)samples);
    return status_ok(status);
}

/* FNV-1a; never PROGRAM. */
static uint64_t hash_of(const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash ? hash : 1;
}

hvd_code hvd_optimizer_step(hvd_context *context, const char *optimizer, hvd_status *status)
{
    TRY(context_check_process(context, status));
    if (!optimizer)
        return status_set(status, HVD_INVALID_ARGUMENT, "an optimizer that reports a step needs a name");
    report(context, hash_of(optimizer), -1, 0);
    return status_ok(status);
}

hvd_code hvd_expect_steps(hvd_context *context, hvd_status *status)
{
    TRY(context_check_process(context, status));
    atomic_store(&context->steps.expected, true);
    return status_ok(status);
}

hvd_code hvd_get_progress(hvd_context *context, hvd_progress *found, hvd_status *status)
{
    TRY(context_check_process(context, status));
    if (found->struct_size < sizeof *found)
        return status_set(status, HVD_INVALID_ARGUMENT, "struct_size of the progress is %zu, not %zu",
                          found->struct_size, sizeof *found);
    struct page_steps steps;
    int64_t now = clock_now();
    /* Without reported steps all records are searched, which must not keep the first report waiting. */
    bool reported = atomic_load_explicit(&context->page.page->head.steps, memory_order_relaxed) > 0;
    if (reported)
        pthread_mutex_lock(&context->steps.lock);
    page_steps_read(context->page.page, now, &steps);
    if (reported)
        pthread_mutex_unlock(&context->steps.lock);
    *found =
        (hvd_progress){.struct_size = found->struct_size,
                       .steps = steps.count,
                       .samples = steps.samples,
                       .step = steps.count ? steps.number : -1,
                       .step_seconds = (double)steps.median / CLOCK_SECOND,
                       .last_step_seconds = steps.count ? (double)(now - steps.last) / CLOCK_SECOND : -1,
                       .up_seconds = (double)(now - context->page.page->head.identity.opened) / CLOCK_SECOND};
    return status_ok(status);
}
