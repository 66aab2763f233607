/* monitor_run.c - see monitor_run.h. It finds the job by a first look, and then does for it what the launcher
 * of a job does for its own (sampler.h, exporter.h, report.h). The job has ended once no rank is seen for a
 * while, though all hosts answer that can be asked: pages go with their processes. */
#include "monitor_run.h"
#include "attached.h"
#include "exporter.h"
#include "report.h"
#include "say.h"

#include "base/clock.h"
#include "base/status.h"
#include "net/crypto.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MILLISECONDS 2000
#define GONE_SECONDS      5.0 /* in which ranks may leave the job and join it again */
#define EXIT_NO_JOB       1
#define EXIT_LOST         1
#define EXIT_SEVERAL      2
#define JOBS_SHOWN        1024
#define HOSTS_SHOWN       256

struct monitor_run {
    struct attached attached; /* the first member: a pointer to one is a pointer to the other */
    struct sampler sampler;
    uv_timer_t timer;
    char *id; /* of the job; NULL: it was not found */
    int ranks, hosts;
    int64_t started, seen;     /* clock_now's: the job, and the last time that a rank of it was */
    bool looked;               /* for the first time */
    bool lost;                 /* it was not seen how the job ended, or whether: */
    char unasked[HOSTS_SHOWN]; /* these hosts, on which ranks were, can't be asked; "": none can */
    int exit_code;
};

hvd_code monitor_check(const struct options *options, hvd_status *status)
{
    if (!options->metrics_port && !options->metrics_discovery && !options->metrics_file && !options->report)
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "--monitor needs --metrics-port, --metrics-discovery, --metrics-file or --report; to see once "
            "what a job does, type horovodrun --status");
    return HVD_OK;
}

/* ---- finding the job ----------------------------------------------------------------------------------- */

/* Returns the only job, or the one that has exactly the id that was given. */
static const struct job_view *choose(const struct job_views *job_views, const char *given)
{
    for (int i = 0; given && i < job_views->count; i++) {
        if (strcmp(job_views->list[i].id, given) == 0)
            return &job_views->list[i];
    }
    return job_views->count == 1 ? job_views->list : NULL;
}

static void say_several(struct monitor_run *run, const struct job_views *job_views)
{
    char list[JOBS_SHOWN] = "";
    for (int i = 0; i < job_views->count; i++)
        append_text(list, sizeof list, "%s%s", i ? ", " : "", job_views->list[i].id);
    say(&run->attached.table, "there are %d jobs: %s; name one, as in horovodrun --monitor %s",
        job_views->count, list, job_views->list->id);
    run->exit_code = EXIT_SEVERAL;
}

static void on_first_look(const struct job_views *job_views, void *argument)
{
    struct monitor_run *run = argument;
    struct table *table = &run->attached.table;
    const char *given = table->options->job;
    const struct job_view *job_view = choose(job_views, given);
    run->looked = true;
    if (!job_view && job_views->count) {
        say_several(run, job_views);
    } else if (!job_view) {
        say(table, "no job %s%sof this user runs on %s", given ? given : "", given ? " " : "",
            table->agents ? "these hosts" : "this host; -H a,b looks at others");
        run->exit_code = EXIT_NO_JOB;
    } else if ((run->id = strdup(job_view->id))) {
        table->attached = run->id;
        table->attached_whole = true;
        table->size = job_view->size > job_view->count ? job_view->size : job_view->count;
        table->most = table->size;
        run->ranks = job_view->count;
        run->hosts = job_view->host_count;
        run->started = job_view->started;
        run->seen = clock_now();
    }
}

/* Without one it has said so, and run->id stays NULL. */
static hvd_code find_job(struct monitor_run *run, hvd_status *status)
{
    TRY(monitor_request(&run->attached.monitor, STACKS_NONE, on_first_look, run, status));
    while (!run->looked && !run->attached.ended)
        attached_turn(&run->attached);
    return run->id || run->exit_code ? HVD_OK : status_no_memory(status);
}

/* ---- until it ends ------------------------------------------------------------------------------------- */

/* Keeps the names of the hosts that do not answer. */
static void find_unasked(struct monitor_run *run, const struct job_views *job_views)
{
    run->unasked[0] = '\0';
    for (int i = 0; i < job_views->count; i++) {
        const struct job_view *job_view = &job_views->list[i];
        for (int j = 0; j < job_view->host_count; j++) {
            if (!job_view->hosts[j].answers)
                append_text(run->unasked, sizeof run->unasked, "%s%s", *run->unasked ? ", " : "",
                            job_view->hosts[j].name);
        }
    }
}

/* The files of metrics stay, with what is known last: without them an alert could not distinguish this
 * from the end of the job. */
static void lose_job(struct monitor_run *run, const struct job_views *job_views)
{
    exporter_show(&run->attached.table, job_views);
    run->lost = true;
    run->exit_code = EXIT_LOST;
    run->attached.ended = true;
}

static void on_look(const struct job_views *job_views, void *argument)
{
    struct monitor_run *run = argument;
    struct table *table = &run->attached.table;
    for (int i = 0; i < job_views->count; i++) {
        for (int j = 0; j < job_views->list[i].count; j++)
            run->seen = job_views->list[i].ranks[j].seen ? clock_now() : run->seen;
    }
    if (run->attached.ended || !run->attached.monitor.complete ||
        clock_now() < run->seen + (int64_t)(GONE_SECONDS * CLOCK_SECOND))
        return;
    find_unasked(run, job_views);
    if (*run->unasked) {
        lose_job(run, job_views);
        say(table, "job %s: its ranks on the hosts that can be asked have ended; host%s %s can't be asked",
            run->id, strchr(run->unasked, ',') ? "s" : "", run->unasked);
    } else {
        say(table, "job %s has ended", run->id);
    }
    run->attached.ended = true;
}

static void on_look_without_hosts(const struct job_views *job_views, void *argument)
{
    struct monitor_run *run = argument;
    if (run->attached.ended)
        return;
    say(&run->attached.table, "no host of job %s can be asked any longer", run->id);
    lose_job(run, job_views);
}

static void on_timer(uv_timer_t *timer)
{
    struct monitor_run *run = timer->data;
    struct table *table = &run->attached.table;
    int unreached = attached_unreached(&run->attached);
    bool none = table->agents && unreached == table->hosts->count;
    monitor_request(&run->attached.monitor, STACKS_NONE, none ? on_look_without_hosts : on_look, run, NULL);
}

static void happened(struct table *table, const struct event *event)
{
    struct monitor_run *run = (struct monitor_run *)table;
    if (event->kind == EVENT_ASKED) {
        monitor_request(&run->attached.monitor, STACKS_LATE, monitor_print, table, NULL);
    } else if (event->kind == EVENT_SIGNALLED) {
        run->exit_code = 128 + event->signal;
        run->attached.ended = true;
    }
}

static hvd_code serve(struct monitor_run *run, hvd_status *status)
{
    struct table *table = &run->attached.table;
    const struct options *options = table->options;
    TRY(crypto_random_hex(table->id, JOB_ID_DIGITS, status));
    TRY(crypto_random_hex(table->secret, JOB_SECRET_DIGITS, status));
    if (options->report)
        TRY(report_check(options->report, status));
    if (options->report || options->metrics_port || options->metrics_discovery) {
        TRY(sampler_open(&run->sampler, table, status));
        if (run->started)
            run->sampler.started = run->started; /* what ranks count began then */
    }
    say(table, "job %s: %d of its %d ranks are seen, on %d host%s", run->id, run->ranks, table->size,
        run->hosts, run->hosts == 1 ? "" : "s");
    TRY(exporter_open(table, status));
    uv_timer_init(&table->loop, &run->timer);
    run->timer.data = run;
    uv_timer_start(&run->timer, on_timer, LOOK_MILLISECONDS, LOOK_MILLISECONDS);
    return HVD_OK;
}

static void write_report(struct monitor_run *run)
{
    char verdict[512] = "";
    bool signalled = run->exit_code > 128;
    append_text(verdict, sizeof verdict, "horovodrun --monitor has watched job %s ", run->id);
    if (*run->unasked)
        append_text(verdict, sizeof verdict,
                    "for as long as it could: its ranks on the hosts that can be asked have ended; host%s %s "
                    "can't be asked, where it may still run",
                    strchr(run->unasked, ',') ? "s" : "", run->unasked);
    else if (signalled)
        append_text(verdict, sizeof verdict, "until it was stopped itself, while the job ran");
    else
        append_text(verdict, sizeof verdict, "until %s; it does not know how it ended",
                    run->lost ? "no host could be asked any longer" : "it ended");
    const struct outcome outcome = {
        .exit_code = run->exit_code, .verdict = verdict, .interrupted = signalled};
    sampler_finish(&run->sampler);
    report_write(&run->sampler, &outcome);
}

static hvd_code run_all(struct monitor_run *run, hvd_status *status)
{
    struct attached *attached = &run->attached;
    TRY(attached_open(attached, status));
    if (attached->ended)
        return HVD_OK;
    if (attached_unreached(attached))
        return status_set(
            status, HVD_REFUSED,
            "a job is monitored on all hosts of -H or --hostfile; leave out those that can't be "
            "asked");
    TRY(find_job(run, status));
    if (!run->id || run->attached.ended)
        return HVD_OK;
    TRY(serve(run, status));
    while (!run->attached.ended)
        attached_turn(attached);
    if (attached->table.options->report)
        write_report(run);
    return HVD_OK;
}

int monitor_run(const struct options *options, const struct settings *settings, struct hosts *hosts,
                struct guard *guard)
{
    struct monitor_run run = {
        .attached.table = {
            .options = options, .settings = settings, .hosts = hosts, .guard = guard, .happened = happened}};
    struct table *table = &run.attached.table;
    hvd_status status;
    if (run_all(&run, &status)) {
        fprintf(stderr, "horovodrun: %s\n", status.text);
        run.exit_code = 1;
    }
    sampler_close(&run.sampler);
    exporter_close(table, run.lost);
    while (run.attached.open && !sink_idle(table->err))
        uv_run(&table->loop, UV_RUN_ONCE);
    attached_close(&run.attached);
    free(run.id);
    return run.exit_code;
}
