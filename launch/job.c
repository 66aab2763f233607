/* job.c - one job from its start to its exit code. */
#include "job.h"
#include "agents.h"
#include "local.h"
#include "rlimits.h"
#include "say.h"
#include "stop.h"

#include "base/clock.h"
#include "base/status.h"
#include "net/crypto.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool same_file(int a, int b)
{
    struct stat one, other;
    return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

static void prepare_rank(struct job *job, struct rank *rank, const struct slot *slot)
{
    rank->job = job;
    rank->slot = slot;
    rank->rank = slot->rank;
    rank->gone = true; /* until it is started */
    struct sink *sinks[OUTPUTS] = {job->out, job->err, NULL};
    for (int i = 0; i < OUTPUTS; i++)
        rank->outputs[i] = (struct output){.sink = sinks[i],
                                           .rank = slot->rank,
                                           .index = i,
                                           .file = -1,
                                           .timestamp = job->options->timestamp};
}

hvd_code job_add_ranks(struct job *job, const struct slot *slots, int count, hvd_status *status)
{
    job->ranks = calloc((size_t)count, sizeof *job->ranks);
    if (!job->ranks)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for %d ranks", count);
    job->count = count;
    for (int i = 0; i < count; i++)
        prepare_rank(job, &job->ranks[i], &slots[i]);
    return HVD_OK;
}

hvd_code job_open(struct job *job, hvd_status *status)
{
    /* They come back as errors of the write. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    sink_open(&job->sinks[0], &job->loop, STDOUT_FILENO);
    sink_open(&job->sinks[1], &job->loop, STDERR_FILENO);
    job->out = &job->sinks[0];
    job->err = same_file(STDOUT_FILENO, STDERR_FILENO) ? job->out : &job->sinks[1];
    uv_timer_init(&job->loop, &job->clock);
    job->clock.data = job;
    return stop_watch_signals(job, status);
}

hvd_code job_serve(struct job *job, const struct addresses *addresses, hvd_status *status)
{
    char own[ADDRESSES_TEXT];
    addresses_to_listen(addresses, job->settings->ports, own);
    hvd_code code = hvd_rendezvous_start(own, job->secret, &job->rendezvous, status);
    if (!code)
        addresses_to_connect(addresses, job->settings->advertised_address,
                             hvd_rendezvous_port(job->rendezvous), job->rendezvous_address,
                             JOB_ADDRESS_LIMIT);
    return code;
}

/* What a failure means: the first one ends the job. It is the cause; later ones follow from it, or from our
 * own signals. */
static void take_failure(struct rank *rank)
{
    struct job *job = rank->job;
    if (job->ending)
        return;
    job->failed = rank->rank;
    job_decide(job, rank->exit_code);
    say_failure(rank);
    stop_all(job, STEP_OWN);
}

void job_rank_ended(struct rank *rank, int exit_code, int signal)
{
    rank->running = false;
    rank->ended = clock_now();
    rank->signal = signal;
    rank->exit_code = exit_code;
    rank->failed = exit_code && !rank->signalled;
    say_rank_end(rank);
    stop_rest(rank);
    if (exit_code)
        take_failure(rank);
}

/* The rank that the text names first, "lost rank 2 (pid 7, host c): ...", if it has failed; else NULL. */
static const struct rank *named_failure(const struct job *job, const char *cause)
{
    const char *name = strstr(cause, "rank ");
    int named;
    if (!name || sscanf(name, "rank %d", &named) != 1 || named < 0 || named >= job->count)
        return NULL;
    return job->ranks[named].failed ? &job->ranks[named] : NULL;
}

/* Ends come in any order: those of ranks that end because another one did may be first. So the first failure
 * is that of the rank that their error names; where they print none, a rank that was killed precedes them. */
static void find_first_failure(struct job *job)
{
    const struct rank *first = &job->ranks[job->failed];
    const char *cause = report_cause(first);
    const struct rank *named = cause ? named_failure(job, cause) : NULL;
    if (named)
        first = named;
    for (int i = 0; !cause && i < job->count; i++) {
        const struct rank *rank = &job->ranks[i];
        if (rank->failed && rank->signal && (!first->signal || rank->ended < first->ended))
            first = rank;
    }
    job->failed = first->rank;
    job->exit_code = first->exit_code;
}

void job_close_outputs(struct rank *rank)
{
    for (int i = 0; i < OUTPUTS; i++)
        output_close(&rank->outputs[i]);
}

void job_rank_failed_to_start(struct rank *rank, int exit_code, const char *text)
{
    struct job *job = rank->job;
    rank->gone = true;
    if (!job->ending)
        job_say(job, "%s", text);
    /* 126 or 127 where the command is at fault, as in a shell. */
    job_decide(job, exit_code ? exit_code : 1);
    job_close_outputs(rank);
    stop_all(job, STEP_TERM);
}

static hvd_code start_ranks(struct job *job, hvd_status *status)
{
    const char *interfaces = job->settings->network_interface;
    struct addresses addresses;
    hvd_code code = *interfaces ? addresses_find(interfaces, "", &addresses, status) : HVD_OK;
    if (!code)
        code = limits_check(job, true, status);
    if (!code)
        code = job_serve(job, &addresses_of_loopback, status);
    if (code)
        return code;
    say_job(job);
    for (int i = 0; i < job->count; i++) {
        hvd_status problem;
        struct rank *rank = &job->ranks[i];
        if (rank_start(rank, &problem) == HVD_OK)
            continue;
        job_rank_failed_to_start(rank, rank->exit_code, problem.text);
        break;
    }
    return HVD_OK;
}

/* Of --task. */
static hvd_code open_function(struct job *job, hvd_status *status)
{
    char path[PATH_MAX];
    if (!job->options->task)
        return HVD_OK;
    snprintf(path, sizeof path, "%s/function", job->options->task);
    job->function = open(path, O_RDONLY | O_CLOEXEC);
    return job->function >= 0 ? HVD_OK : status_set_errno(status, errno, "can't read %s", path);
}

static hvd_code job_start(struct job *job, hvd_status *status)
{
    hvd_code code = crypto_random_hex(job->id, JOB_ID_DIGITS, status);
    if (!code)
        code = crypto_random_hex(job->secret, JOB_SECRET_DIGITS, status);
    if (!code)
        code = job_open(job, status);
    if (!code)
        code = open_function(job, status);
    if (!code)
        code = job_add_ranks(job, job->hosts->slots, job->size, status);
    if (!code)
        code = job->guard->has_agents ? remotes_start(job, status) : start_ranks(job, status);
    return code;
}

/* A closed or full stdout ends the job: what it prints is lost, and `| head -1` wants no more. */
static void check_sink(struct job *job, const struct sink *sink)
{
    if (!sink->error || job->ending)
        return;
    job_decide(job, sink->error == EPIPE ? 128 + SIGPIPE : 1);
    job_say(job, "can't write to %s: %s; ending the job", sink == job->out ? "stdout" : "stderr",
            strerror(sink->error));
    stop_all(job, STEP_TERM);
}

static void check_output(struct job *job, struct output *output)
{
    output_resume(output);
    if (!output->file_error)
        return;
    job_say(job, "can't keep what rank %d prints on %s: %s; its file ends here", output->rank,
            output_name(output), strerror(output->file_error));
    output->file_error = 0;
}

static void job_loop(struct job *job)
{
    while (!stop_finished(job)) {
        uv_run(&job->loop, UV_RUN_ONCE);
        if (job->remotes)
            remotes_turn(job);
        check_sink(job, job->out);
        check_sink(job, job->err);
        for (int i = 0; i < job->count; i++) {
            for (int j = 0; j < OUTPUTS; j++)
                check_output(job, &job->ranks[i].outputs[j]);
        }
    }
    /* Their last output, perhaps without a line's end, before the report that quotes it. */
    for (int i = 0; i < job->count && !job->abandoned; i++)
        job_close_outputs(&job->ranks[i]);
    if (job->failed >= 0)
        find_first_failure(job);
    say_first_failure(job);
    while (!job->abandoned && !(sink_idle(job->out) && sink_idle(job->err)))
        uv_run(&job->loop, UV_RUN_ONCE);
}

static void close_handle(uv_handle_t *handle, void *argument)
{
    (void)argument;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

void job_close(struct job *job)
{
    if (job->remotes)
        remotes_close(job);
    guard_kill_descendants(job->guard);
    /* Handles are memory of the job: the loop has to let go of all of them first. */
    uv_walk(&job->loop, close_handle, NULL);
    uv_run(&job->loop, UV_RUN_DEFAULT);
    uv_loop_close(&job->loop);
    for (int i = 0; job->ranks && i < job->count; i++) {
        for (int j = 0; j < OUTPUTS; j++)
            output_free(&job->ranks[i].outputs[j]);
    }
    free(job->ranks);
    sink_free(&job->sinks[0]);
    sink_free(&job->sinks[1]);
    socket_close(&job->function);
    hvd_rendezvous_stop(job->rendezvous);
}

static void on_signal(struct job *job, int signal)
{
    stop_by_signal(job, "", signal);
}

int job_run(const struct options *options, const struct settings *settings, struct hosts *hosts,
            struct guard *guard)
{
    struct job job = {.options = options,
                      .settings = settings,
                      .hosts = hosts,
                      .size = hosts->size,
                      .guard = guard,
                      .input = STDIN_FILENO,
                      .function = -1,
                      .rank_ended = job_rank_ended,
                      .signal_came = on_signal,
                      .failed = -1};
    hvd_status status;
    if (uv_loop_init(&job.loop)) {
        fprintf(stderr, "horovodrun: can't make an event loop: too many open files?\n");
        return 1;
    }
    if (job_start(&job, &status) == HVD_OK) {
        job_loop(&job);
    } else {
        fprintf(stderr, "horovodrun: %s\n", status.text);
        job.exit_code = 1;
    }
    job_close(&job);
    remotes_free(&job);
    return job.exit_code;
}
