/* job.c - runs one job from its start to its exit code: passes events to the state machine that decides which
 * processes are the ranks of the job (membership/membership.h), and carries out its actions. One thread, the
 * loop's. */
#include "job.h"
#include "elastic.h"
#include "elastic_options.h"
#include "exporter.h"
#include "faults.h"
#include "monitor.h"
#include "nodes.h"
#include "processes.h"
#include "record_query.h"
#include "report.h"
#include "say.h"
#include "stalls.h"
#include "starter.h"
#include "status_server.h"
#include "traces.h"

#include "base/clock.h"
#include "base/status.h"
#include "membership/membership.h"
#include "net/crypto.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAME_INTERRUPT 0.2 /* `timeout` and make send SIGINT to the group and to the process */

struct job {
    struct table table; /* the first member: a pointer to one is a pointer to the other */
    struct monitor monitor;
    struct record_query record_query;
    struct status_server server;
    struct sampler sampler; /* with --report or a live page */
    struct stalls stalls;
    struct membership *membership;
    struct elastic elastic; /* of an elastic job */
    bool is_elastic;
    bool begun;             /* the processes have been started */
    int exit_code;          /* horovodrun's */
    struct process *failed; /* whose failure was the first, or NULL; at the end, the first cause */
    const hvd_fault *cause; /* the first cause, if it is no rank that failed by itself; or NULL */
    hvd_fault lost;         /* the first host that was lost */
    int faults;             /* records of ranks so far */
    int interrupts;         /* times that SIGINT was received */
    int64_t interrupted;    /* when the first was */
    bool abandoned;         /* leave without waiting for anything */
};

/* ---- events ------------------------------------------------------------------------------------------- */

static void finish(struct job *job, const struct membership_action *action)
{
    if (*action->text)
        say(&job->table, "%s", action->text);
    if (action->slot >= 0 && action->exit_code) {
        job->failed = table_find(&job->table, action->slot);
        if (job->failed)
            say_failure(job->failed);
    }
    job->table.ending = true;
    job->exit_code = action->exit_code;
}

static bool next_action(struct job *job, struct membership_action *action)
{
    do {
        if (membership_next(job->membership, action))
            return true;
    } while (job->is_elastic && elastic_take_input(&job->elastic));
    return false;
}

/* Carries out what follows from an input of the membership. */
static void act(struct table *table)
{
    struct job *job = (struct job *)table;
    static const enum step steps[] = {[MEMBERSHIP_KEEP] = STEP_NONE,
                                      [MEMBERSHIP_OWN] = STEP_OWN,
                                      [MEMBERSHIP_TERM] = STEP_TERM,
                                      [MEMBERSHIP_KILL] = STEP_KILL};
    struct membership_action action;
    while (next_action(job, &action)) {
        bool all = action.kind == MEMBERSHIP_FINISH || (action.kind == MEMBERSHIP_END && action.slot < 0);
        if (action.kind == MEMBERSHIP_FINISH)
            finish(job, &action);
        if (job->is_elastic && (!all || action.kind == MEMBERSHIP_FINISH))
            elastic_act(&job->elastic, &action);
        if (all)
            table_end(table, steps[action.step]);
    }
}

static void decide(struct job *job, const struct event *event)
{
    struct membership *membership = job->membership;
    int64_t now = job->is_elastic ? elastic_now(&job->elastic) : clock_now();
    switch (event->kind) {
    case EVENT_ENDED:
        membership_ended(membership, now, event->process->slot, event->exit_code, event->signal);
        break;
    case EVENT_NOT_STARTED:
        /* 126 or 127 where the command is at fault, as in a shell. */
        membership_not_started(membership, now, event->process->slot, event->exit_code);
        break;
    case EVENT_HOST_PREPARED:
        membership_host_prepared(membership, now, event->host);
        break;
    case EVENT_HOST_UNUSABLE:
        membership_host_failed(membership, now, event->host);
        break;
    case EVENT_HOST_LEAVES:
        membership_host_leaves(membership, now, event->host);
        break;
    case EVENT_HOST_LOST:
    case EVENT_HOST_SILENT:
        membership_host_lost(membership, now, event->host, event->kind == EVENT_HOST_SILENT);
        break;
    case EVENT_HOST_FAILED: /* no process runs */
        membership_stop(membership, now, event->exit_code, MEMBERSHIP_KEEP);
        break;
    case EVENT_OUTPUT_FAILED:
        membership_stop(membership, now, event->exit_code, MEMBERSHIP_TERM);
        break;
    case EVENT_SIGNALLED:
        membership_stop(membership, now, 128 + event->signal,
                        event->signal == SIGTERM ? MEMBERSHIP_TERM : MEMBERSHIP_OWN);
        break;
    default: /* the progress of the start */
        break;
    }
    act(&job->table);
}

static void on_not_started(struct job *job, const struct event *event)
{
    event->process->gone = event->process->gone_reported = true;
    event->process->ended = clock_now();
    if (!job->table.ending)
        say(&job->table, "%s", event->text);
    process_close_outputs(event->process);
    decide(job, event);
}

/* The first SIGINT ends the job; the second, if it is meant as one, kills. */
static void on_signalled(struct job *job, const struct event *event)
{
    struct table *table = &job->table;
    int64_t now = clock_now();
    bool first = !(event->signal == SIGINT && job->interrupts > 0);
    if (first) {
        say(table, "%sgot %s; ending the job", event->text, signal_name(event->signal));
        /* The terminal would have done the same if the ranks were in its session. They get SIGTERM by their
         * step. */
        for (int i = 0; i < table->count && event->signal != SIGTERM; i++)
            process_signal(table->list[i], event->signal);
        decide(job, event);
    }
    if (event->signal != SIGINT)
        return;
    if (job->interrupts++ == 0) {
        job->interrupted = now;
    } else if (now > job->interrupted + (int64_t)(SAME_INTERRUPT * CLOCK_SECOND)) {
        table_end(table, STEP_KILL);
        job->abandoned = !sink_idle(table->out) || !sink_idle(table->err); /* no reader */
    }
}

/* Says why ranks wait, after one of them has reported that they do. */
static void print_verdict(const struct job_views *job_views, void *argument)
{
    struct table *table = argument;
    for (int i = 0; i < job_views->count && !table->ending; i++) {
        const struct job_view *job_view = &job_views->list[i];
        if (job_view->verdict != VERDICT_HEALTHY)
            say(table, "%s; Ctrl-\\ here, or `horovodrun --status %.8s`, shows all ranks", job_view->text,
                table->id);
    }
}

static void on_stalled(struct job *job)
{
    monitor_request(&job->monitor, STACKS_LATE, print_verdict, &job->table, NULL);
}

static void on_asked(struct job *job)
{
    hvd_status status;
    if (monitor_request(&job->monitor, STACKS_LATE, monitor_print, &job->table, &status))
        say(&job->table, "%s", status.text);
}

/* ---- the start of an epoch ---------------------------------------------------------------------------- */

/* All hosts are prepared. Their numbers serve as names: entries of one name may differ in user or port. */
static void offer_seats(struct membership *membership, const struct hosts *hosts,
                        struct membership_host *offered, char (*names)[16])
{
    for (int i = 0; i < hosts->count; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        offered[i] = (struct membership_host){names[i], hosts->list[i].ranks};
    }
    membership_discovered(membership, clock_now(), offered, hosts->count);
    for (int i = 0; i < hosts->count; i++)
        membership_host_prepared(membership, clock_now(), i);
}

/* Adds a row for each process that the first epoch consists of, and has its assignments published. */
static hvd_code begin_epoch(struct job *job, hvd_status *status)
{
    struct table *table = &job->table;
    struct epoch epoch = {.number = table->epoch};
    struct membership_host *offered = calloc((size_t)table->hosts->count, sizeof *offered);
    char(*names)[16] = calloc((size_t)table->hosts->count, sizeof *names);
    struct membership_action action;
    memcpy(epoch.job, table->id, sizeof epoch.job);
    bool added = epoch_init(&epoch, table->size) && offered && names;
    if (added)
        offer_seats(job->membership, table->hosts, offered, names);
    while (added && membership_next(job->membership, &action)) {
        if (action.kind != MEMBERSHIP_START)
            continue;
        added = table_add(table, action.slot, &table->hosts->places[action.rank]);
        epoch_set(&epoch, action.rank, action.slot, action.rank);
    }
    hvd_code code = added ? table->starter->assign(table, &epoch, status) : status_no_memory(status);
    epoch_free(&epoch);
    free(offered);
    free(names);
    return code;
}

/* All processes after one that can't be started are not started either. */
static void start_processes(struct job *job)
{
    struct table *table = &job->table;
    hvd_status status;
    say_job(table);
    for (int i = 0; i < table->count && !table->ending; i++) {
        struct process *process = table->list[i];
        if (table->starter->start(process, &status))
            on_not_started(job, &(struct event){.kind = EVENT_NOT_STARTED,
                                                .process = process,
                                                .exit_code = process->exit_code,
                                                .text = status.text});
    }
    /* Only now: connecting takes a moment, and what ranks publish meanwhile stays there. */
    if (table->rendezvous && faults_watch(table, table->id, table->epoch, &status))
        say(table, "%s", status.text);
}

/* Returns the process of the rank, or NULL. */
static struct process *find_rank(const struct table *table, int rank)
{
    for (int i = 0; i < table->count; i++) {
        if (table->list[i]->place.rank == rank && !table->list[i]->apart)
            return table->list[i];
    }
    return NULL;
}

/* Keeps the newest record of a rank, and the number of its first one. */
static void on_fault(struct job *job, const hvd_fault *fault)
{
    struct process *process = find_rank(&job->table, fault->rank);
    job->faults++;
    if (!process)
        return;
    if (!process->fault && (process->fault = malloc(sizeof *process->fault)))
        process->fault_number = job->faults;
    if (process->fault)
        *process->fault = *fault;
}

/* The starter has reported it. A host is also a cause if it had been silent for the whole limit when the
 * first process failed: the records of why it did may have gone to that host. */
static void on_lost(struct job *job, const struct event *event)
{
    const struct table *table = &job->table;
    int64_t limit = (int64_t)(table->settings->timeout_seconds * CLOCK_SECOND);
    bool earlier =
        event->kind == EVENT_HOST_SILENT && job->failed && event->since + limit < job->failed->ended;
    if (job->is_elastic)
        elastic_lose_host(&job->elastic, event->host);
    else if (event->fault && !job->cause && (!table->ending || earlier)) {
        job->lost = *event->fault;
        job->cause = &job->lost;
    }
    decide(job, event);
}

static void happened(struct table *table, const struct event *event)
{
    struct job *job = (struct job *)table;
    hvd_status status;
    switch (event->kind) {
    case EVENT_PREPARED:
        if (job->is_elastic ? elastic_open(&job->elastic, &status) : begin_epoch(job, &status)) {
            say(table, "%s", status.text);
            decide(job, &(struct event){.kind = EVENT_HOST_FAILED, .exit_code = 1});
        }
        break;
    case EVENT_ASSIGNED:
        job->begun = true;
        if (!job->is_elastic)
            start_processes(job);
        break;
    case EVENT_NOT_STARTED:
        on_not_started(job, event);
        break;
    case EVENT_ENDED:
        faults_read(table, 0);
        if (job->is_elastic)
            elastic_read_reports(&job->elastic);
        say_process_end(event->process);
        decide(job, event);
        if (job->is_elastic && event->process->failed && !table->ending)
            elastic_say_end(event->process);
        break;
    case EVENT_FAULT:
        on_fault(job, event->fault);
        break;
    case EVENT_SIGNALLED:
        on_signalled(job, event);
        break;
    case EVENT_STALLED:
        on_stalled(job);
        break;
    case EVENT_ASKED:
        on_asked(job);
        break;
    case EVENT_HOST_LOST:
    case EVENT_HOST_SILENT:
        on_lost(job, event);
        break;
    default: /* the starter has reported the rest */
        decide(job, event);
        break;
    }
}

/* ---- the first cause ---------------------------------------------------------------------------------- */

static struct process *find_first_record(const struct table *table)
{
    struct process *first = NULL;
    for (int i = 0; i < table->count; i++) {
        struct process *process = table->list[i];
        if (process->fault && (!first || process->fault_number < first->fault_number))
            first = process;
    }
    return first;
}

/* Ends are reported in any order: those of ranks that end because another one did may be first. So the first
 * failure is that of the rank which published the first record, if its program raised an exception while its
 * engine ran, or of the rank that its engine had lost. Without a record, a rank that was killed precedes the
 * others. job->cause is set if no rank has failed by itself. */
static void find_first_failure(struct job *job)
{
    const struct table *table = &job->table;
    const struct process *reporter = find_first_record(table);
    struct process *first = job->failed;
    if (reporter) {
        const hvd_status *status = &reporter->fault->status;
        bool lost = status->code && status->cause && status->lost_rank >= 0;
        struct process *named = find_rank(table, lost ? status->lost_rank : reporter->place.rank);
        if (named && named->failed && (lost || !status->code)) {
            first = named;
            job->cause = NULL;
        } else if (status->code) {
            job->cause = reporter->fault;
        }
    }
    for (int i = 0; !reporter && i < table->count; i++) {
        struct process *process = table->list[i];
        if (process->failed && process->signal && (!first->signal || process->ended < first->ended))
            first = process;
    }
    job->failed = first;
    job->exit_code = first->exit_code;
}

/* ---- the loop ----------------------------------------------------------------------------------------- */

/* A closed or full stdout ends the job: its output would be lost, and `| head -1` reads no more. */
static void check_sink(struct job *job, const struct sink *sink)
{
    struct table *table = &job->table;
    if (!sink->error || table->ending)
        return;
    decide(job, &(struct event){.kind = EVENT_OUTPUT_FAILED,
                                .exit_code = sink->error == EPIPE ? 128 + SIGPIPE : 1});
    say(table, "can't write to %s: %s; ending the job", sink == table->out ? "stdout" : "stderr",
        strerror(sink->error));
}

static void check_output(struct table *table, struct output *output)
{
    output_resume(output);
    if (!output->file_error)
        return;
    say(table, "can't keep what rank %d prints on %s: %s; its file ends here", output->rank,
        output_name(output), strerror(output->file_error));
    output->file_error = 0;
}

static void run_loop(struct job *job)
{
    struct table *table = &job->table;
    /* An elastic job may have no process for a while. */
    while (!job->abandoned &&
           !((table->ending || (job->begun && !job->is_elastic)) && table_finished(table))) {
        table_run(table);
        if (table->starter->turn)
            table->starter->turn(table);
        if (job->is_elastic)
            elastic_turn(&job->elastic);
        check_sink(job, table->out);
        check_sink(job, table->err);
        for (int i = 0; i < table->count; i++) {
            for (int j = 0; j < OUTPUTS; j++)
                check_output(table, &table->list[i]->outputs[j]);
        }
    }
    /* The report quotes their last output, which may have no end of a line. */
    for (int i = 0; i < table->count && !job->abandoned; i++)
        process_close_outputs(table->list[i]);
    char verdict[VERDICT_LIMIT] = "";
    if (job->failed) {
        faults_read(table, FAULTS_LAST_SECONDS);
        if (!job->is_elastic) /* membership has found it */
            find_first_failure(job);
    }
    if (job->failed)
        say_first_failure(job->failed, job->cause, verdict);
    const struct outcome outcome = {.exit_code = job->exit_code,
                                    .first = job->cause ? NULL : job->failed,
                                    .cause = job->cause,
                                    .verdict = verdict,
                                    .interrupted = !job->failed && job->exit_code > 128};
    faults_write_outcome(table, &outcome);
    /* The folders of traces and of the report may be on a file server that hangs: the cause is printed
     * before.
     */
    while (!job->abandoned && !sink_idle(table->err))
        uv_run(&table->loop, UV_RUN_ONCE);
    if (job->begun && !job->abandoned)
        traces_write(table, job->failed || job->cause);
    if (table->options->report && !job->abandoned)
        sampler_finish(&job->sampler);
    if (table->options->report)
        report_write(&job->sampler, &outcome);
    while (!job->abandoned && !(sink_idle(table->out) && sink_idle(table->err)))
        uv_run(&table->loop, UV_RUN_ONCE);
}

static hvd_code start(struct job *job, hvd_status *status)
{
    struct table *table = &job->table;
    const struct options *options = table->options;
    const char *folder = options->task;
    char path[PATH_MAX];
    TRY(traces_prepare(table->settings, status));
    if (options->report)
        TRY(report_check(options->report, status));
    TRY(crypto_random_hex(table->id, JOB_ID_DIGITS, status));
    if (table->hosts->nodes)
        nodes_derive_secret(table->hosts->nodes->secret, table->id, table->secret);
    else
        TRY(crypto_random_hex(table->secret, JOB_SECRET_DIGITS, status));
    TRY(table_open(table, status));
    if (options->report || options->metrics_port || options->metrics_discovery)
        TRY(sampler_open(&job->sampler, table, status));
    TRY(exporter_open(table, status)); /* wrong options are reported before anything starts */
    if (folder) {
        snprintf(path, sizeof path, "%s/function", folder);
        table->function = open(path, O_RDONLY | O_CLOEXEC);
        if (table->function < 0)
            return status_set_errno(status, errno, "can't read %s", path);
    }
    return table->starter->open(table, status);
}

int job_run(const struct options *options, const struct settings *settings, struct hosts *hosts,
            struct guard *guard)
{
    struct job job = {.table = {.options = options,
                                .settings = settings,
                                .hosts = hosts,
                                .starter = guard->has_agents ? &agents_starter : &local_starter,
                                .size = hosts->size,
                                .most = hosts->size,
                                .guard = guard,
                                .input = STDIN_FILENO,
                                .function = -1,
                                .happened = happened},
                      .server.listener = -1};
    hvd_status status;
    struct membership_config config = {
        .fixed = true, .start = hosts->size, .min = hosts->size, .max = hosts->size, .timeout = INT64_MAX};
    job.is_elastic = elastic_requested(options) && !elastic_configure(&config, options, hosts, &status);
    job.membership = membership_new(&config);
    if (job.is_elastic) {
        job.table.elastic = true;
        job.table.size = config.start;
        job.table.most = elastic_most(&config);
        job.elastic = (struct elastic){.table = &job.table, .membership = job.membership, .act = act};
        job.table.discovery = &job.elastic.discovery;
        job.table.changes = &job.elastic.changes;
    }
    if (!job.membership || uv_loop_init(&job.table.loop)) {
        fprintf(stderr, "horovodrun: can't make an event loop: too many open files?\n");
        membership_free(job.membership);
        return 1;
    }
    monitor_init(&job.monitor, &job.table);
    record_query_init(&job.record_query, &job.table);
    if (start(&job, &status) == HVD_OK) {
        status_server_open(&job.server, &job.monitor);
        stalls_watch(&job.stalls, &job.table);
        run_loop(&job);
        status_server_close(&job.server);
    } else {
        fprintf(stderr, "horovodrun: %s\n", status.text);
        job.exit_code = 1;
        nodes_dismiss(hosts->nodes, job.exit_code, status.text);
    }
    if (job.table.starter->conclude)
        job.table.starter->conclude(&job.table, job.exit_code);
    sampler_close(&job.sampler);
    exporter_close(&job.table, false);
    elastic_close(&job.elastic);
    table_close(&job.table);
    elastic_free(&job.elastic);
    monitor_free(&job.monitor);
    record_query_free(&job.record_query);
    status_server_free(&job.server);
    membership_free(job.membership);
    return job.exit_code;
}
