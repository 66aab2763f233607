/* tuning.c - feeds the tuner with batches, and applies its values. Under the progress lock, except open and
 * close. */
#include "engine/tuning.h"

#include "base/clock.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/thread.h"
#include "engine/batch.h"
#include "engine/comm.h"
#include "engine/context.h"
#include "engine/handle.h"
#include "tune/tuner.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What was found for ranks on hosts. */
struct tuned {
    char job[64];
    uint64_t layout; /* of hosts and ranks */
    bool done;
    struct trial best;
    double default_score;
};

struct tuning {
    struct tuner tuner;
    bool begun;         /* the first decision is made, */
    struct tuned found; /* which knows the job and its layout */
    struct sample sample;
    FILE *log; /* NULL: no log */
    bool changed;
};

/* ---- what was found, for later epochs ------------------------------------------------------------------ */

#define TUNED 8

static struct tuned tuned_before[TUNED]; /* of this process; the newest replaces the oldest */
static unsigned next_tuned;
static pthread_mutex_t tuned_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t layout_of(const struct topology *topology)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (int rank = 0; rank < topology->size; rank++)
        hash = (hash ^ (uint64_t)topology->host_of[rank]) * UINT64_C(0x100000001b3);
    return (hash ^ (uint64_t)topology->size) * UINT64_C(0x100000001b3);
}

static struct tuned *find(const struct tuned *like)
{
    for (int i = 0; i < TUNED; i++) {
        if (tuned_before[i].layout == like->layout && strcmp(tuned_before[i].job, like->job) == 0)
            return &tuned_before[i];
    }
    return NULL;
}

/* Goes on from what an epoch with the same layout has found. */
static void recall(struct comm *comm)
{
    struct tuning *tuning = comm->tuning;
    const struct settings *settings = &comm->context->settings;
    struct tuned *found = &tuning->found;
    tuning->begun = true;
    append_text(found->job, sizeof found->job, "%s", settings->job);
    found->layout = layout_of(&comm->topology);
    pthread_mutex_lock(&tuned_lock);
    const struct tuned *known = settings->epoch > 0 ? find(found) : NULL;
    if (known) {
        tuning->tuner.values = known->best.values;
        tuning->changed = true;
    }
    if (known && known->done) {
        tuning->tuner.best = known->best;
        tuning->tuner.default_score = known->default_score;
        tuning->tuner.stage = TUNER_DONE;
    }
    pthread_mutex_unlock(&tuned_lock);
}

static void remember(const struct tuning *tuning)
{
    struct tuned found = tuning->found;
    found.done = tuning->tuner.stage == TUNER_DONE;
    found.best = tuning->tuner.best;
    if (found.done) /* the defaults, if they have won */
        found.best.values = tuning->tuner.values;
    found.default_score = tuning->tuner.default_score;
    if (!tuning->begun || !(found.done || tuning->tuner.trial_count))
        return;
    pthread_mutex_lock(&tuned_lock);
    struct tuned *place = find(&found);
    *(place ? place : &tuned_before[next_tuned++ % TUNED]) = found;
    pthread_mutex_unlock(&tuned_lock);
}

/* ---- the log ------------------------------------------------------------------------------------------- */

/* Each row is written at once, for a user who watches the file, and without the decimal comma of the
 * program's locale. */
static void write_row(void *owner, enum tuner_stage stage, const struct values *values, double score)
{
    FILE *log = ((struct tuning *)owner)->log;
    if (!log)
        return;
    struct held_signals held = signals_hold();
    locale_t before = uselocale(c_locale());
    for (int i = 0; i < PARAMETERS; i++)
        fprintf(log, "%.15g,", values->of[i]);
    fprintf(log, "%s,%.6g\n", tuner_stage_names[stage], score);
    fflush(log);
    uselocale(before);
    signals_release(&held);
}

/* A later epoch adds to the file. */
static hvd_code open_log(struct tuning *tuning, const struct settings *settings, hvd_status *status)
{
    const char *path = settings->autotune_log;
    if (!*path)
        return HVD_OK;
    tuning->log = fopen(path, settings->epoch > 0 ? "ae" : "we");
    if (!tuning->log)
        return status_set_errno(status, errno, "can't open the autotune log %s (HOROVOD_AUTOTUNE_LOG)", path);
    if (fseek(tuning->log, 0, SEEK_END) == 0 && ftell(tuning->log) > 0)
        return HVD_OK;
    struct held_signals held = signals_hold();
    for (int i = 0; i < PARAMETERS; i++)
        fprintf(tuning->log, "%s,", parameter_table[i].column);
    fprintf(tuning->log, "stage,score\n");
    fflush(tuning->log);
    signals_release(&held);
    return HVD_OK;
}

hvd_code tuning_open(struct hvd_context *context, hvd_status *status)
{
    const struct settings *settings = &context->settings;
    bool chosen[PARAMETERS];
    if (!settings->autotune)
        return HVD_OK;
    TRY(parameters_choose(settings, chosen, status)); /* every rank rejects settings that make no sense */
    if (context->placement.rank != 0)
        return HVD_OK;
    struct tuning *tuning = calloc(1, sizeof *tuning);
    if (!tuning)
        return status_no_memory(status);
    context->tuning = tuning;
    TRY(tuner_init(&tuning->tuner, settings, status));
    tuning->tuner.report = write_row;
    tuning->tuner.owner = tuning;
    tuning->sample.steps = (int)settings->autotune_steps_per_sample;
    TRY(open_log(tuning, settings, status));
    if (tuning->tuner.stage == TUNER_DONE) {
        log_info(context->placement.rank, "autotune has nothing to do: every parameter was given a value");
        tuning_close(context);
    }
    return HVD_OK;
}

void tuning_close(struct hvd_context *context)
{
    struct tuning *tuning = context->tuning;
    if (!tuning)
        return;
    const struct trial *best = &tuning->tuner.best;
    remember(tuning);
    if (tuning->tuner.stage != TUNER_DONE && tuning->tuner.trial_count) /* the job was too short */
        write_row(tuning, TUNER_DONE, &best->values, best->score);
    struct held_signals held = signals_hold();
    /* The operator is not ||, since the file must be closed in any case. */
    if (tuning->log && (ferror(tuning->log) | fclose(tuning->log)))
        log_warning(context->placement.rank, "the autotune log %s is not whole: is the disk full?",
                    context->settings.autotune_log);
    signals_release(&held);
    sample_fini(&tuning->sample);
    free(tuning);
    context->tuning = NULL;
}

/* Requests without a name are not counted: their numbers never repeat. */
static void note_tensors(struct sample *sample, const struct running_batch *running)
{
    for (int i = 0; i < running->count && !running->follows; i++) {
        if (!running->handles[i]->pending.unnamed)
            sample_count(sample, running->handles[i]->name);
    }
}

void tuning_count(struct tuning *tuning, const struct running_batch *running)
{
    assert(context_is_held(running->comm->context));
    struct sample *sample = &tuning->sample;
    note_tensors(sample, running);
    /* One of these tensors has occurred once more than the sample has steps, so this batch is the first of
     * the next sample. */
    if (sample_is_over(sample)) {
        int64_t now = clock_now();
        bool changed = sample->steady && tuner_record(&tuning->tuner, sample_score(sample, now));
        tuning->changed |= changed;
        sample_begin(sample, !changed, now);
        note_tensors(sample, running);
    }
    sample->bytes += (double)running->collective.input.length;
}

void tuning_apply(struct comm *comm)
{
    assert(context_is_held(comm->context));
    struct tuning *tuning = comm->tuning;
    const struct tuner *tuner = &tuning->tuner;
    if (!tuning->begun)
        recall(comm);
    if (tuning->changed) {
        comm->latency_threshold = (uint64_t)tuner->values.of[PARAMETER_latency_threshold];
        comm->ring_piece_bytes = (uint64_t)tuner->values.of[PARAMETER_ring_piece_bytes];
        coordinator_tune(comm->coordinator, (uint64_t)tuner->values.of[PARAMETER_fusion_threshold],
                         (int64_t)(tuner->values.of[PARAMETER_cycle_time_ms] * 1e6));
    }
    tuning->changed = false;
    if (tuner->stage != TUNER_DONE)
        return;
    char text[512] = "";
    for (int i = 0; i < PARAMETERS; i++)
        append_text(text, sizeof text, "%s%s=%.15g%s", i ? " " : "", parameter_table[i].setting,
                    tuner->values.of[i], tuner->chosen[i] ? "" : " (given)");
    log_info(comm->context->placement.rank, "autotune is done: %s; %.6g bytes/us, with the defaults %.6g",
             text, tuner->best.score, tuner->default_score);
    tuning_close(comm->context);
    comm->tuning = NULL;
}
