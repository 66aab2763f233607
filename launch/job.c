/* job.c - one job from its start to its exit code. */
#include "job.h"

#include "base/clock.h"
#include "base/crypto.h"
#include "base/status.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID_DIGITS     32
#define SECRET_DIGITS 64

void job_say(struct job *job, const char *format, ...)
{
    char line[2200] = "horovodrun: ";
    size_t used = strlen(line), limit = sizeof line - 1;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + used, limit - used, format, arguments);
    va_end(arguments);
    used = strlen(line);
    line[used++] = '\n';
    sink_put(job->err, line, used);
    sink_flush(job->err);
}

void job_decide(struct job *job, int exit_code)
{
    if (job->ending)
        return;
    job->ending = true;
    job->exit_code = exit_code;
}

static bool same_file(int a, int b)
{
    struct stat one, other;
    return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

static void prepare_rank(struct job *job, int index)
{
    struct rank *rank = &job->ranks[index];
    rank->job = job;
    rank->slot = &job->hosts->slots[index];
    rank->rank = index;
    rank->gone = true; /* until it is started */
    rank->out = (struct output){.sink = job->out, .rank = index, .stream = "stdout", .file = -1};
    rank->err = (struct output){.sink = job->err, .rank = index, .stream = "stderr", .file = -1};
    rank->out.timestamp = rank->err.timestamp = job->options->timestamp;
}

static hvd_code job_prepare(struct job *job, hvd_status *status)
{
    hvd_code code = crypto_random_hex(job->id, ID_DIGITS, status);
    if (!code)
        code = crypto_random_hex(job->secret, SECRET_DIGITS, status);
    if (!code)
        code = hvd_rendezvous_start("127.0.0.1", job->secret, &job->rendezvous, status);
    if (code)
        return code;
    /* They come back as errors of the write. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    sink_open(&job->sinks[0], &job->loop, STDOUT_FILENO);
    sink_open(&job->sinks[1], &job->loop, STDERR_FILENO);
    job->out = &job->sinks[0];
    job->err = same_file(STDOUT_FILENO, STDERR_FILENO) ? job->out : &job->sinks[1];
    job->ranks = calloc((size_t)job->size, sizeof *job->ranks);
    if (!job->ranks)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for %d ranks", job->size);
    for (int i = 0; i < job->size; i++)
        prepare_rank(job, i);
    uv_timer_init(&job->loop, &job->clock);
    job->clock.data = job;
    return stop_watch_signals(job, status);
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
    report_failure(rank);
    stop_all(job, STEP_OWN);
}

static void on_exit_of_rank(uv_process_t *process, int64_t exit_code, int signal)
{
    struct rank *rank = process->data;
    rank->running = false;
    rank->ended = clock_now();
    rank->signal = signal;
    rank->exit_code = signal ? 128 + signal : (int)exit_code;
    report_rank_end(rank);
    stop_rest(rank);
    if (rank->exit_code)
        take_failure(rank);
}

static void start_ranks(struct job *job)
{
    report_job(job);
    for (int i = 0; i < job->size; i++) {
        hvd_status status;
        struct rank *rank = &job->ranks[i];
        if (rank_start(rank, on_exit_of_rank, &status) == HVD_OK)
            continue;
        job_say(job, "%s", status.text);
        /* 126 or 127 where the command is at fault, as in a shell. */
        job_decide(job, rank->exit_code ? rank->exit_code : 1);
        output_close(&rank->out);
        output_close(&rank->err);
        stop_all(job, STEP_TERM);
        return;
    }
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
    job_say(job, "can't keep what rank %d prints on %s: %s; its file ends here", output->rank, output->stream,
            strerror(output->file_error));
    output->file_error = 0;
}

static void job_loop(struct job *job)
{
    while (!stop_finished(job)) {
        uv_run(&job->loop, UV_RUN_ONCE);
        stop_reap(job);
        check_sink(job, job->out);
        check_sink(job, job->err);
        for (int i = 0; i < job->size; i++) {
            check_output(job, &job->ranks[i].out);
            check_output(job, &job->ranks[i].err);
        }
    }
    /* Their last output, perhaps without a line's end, before the report that quotes it. */
    for (int i = 0; i < job->size && !job->abandoned; i++) {
        output_close(&job->ranks[i].out);
        output_close(&job->ranks[i].err);
    }
    report_failure_again(job);
    while (!job->abandoned && !(sink_idle(job->out) && sink_idle(job->err)))
        uv_run(&job->loop, UV_RUN_ONCE);
}

static void close_handle(uv_handle_t *handle, void *argument)
{
    (void)argument;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void job_free(struct job *job)
{
    /* Handles are memory of the job: the loop has to let go of all of them first. */
    uv_walk(&job->loop, close_handle, NULL);
    uv_run(&job->loop, UV_RUN_DEFAULT);
    uv_loop_close(&job->loop);
    for (int i = 0; job->ranks && i < job->size; i++) {
        output_free(&job->ranks[i].out);
        output_free(&job->ranks[i].err);
    }
    free(job->ranks);
    sink_free(&job->sinks[0]);
    sink_free(&job->sinks[1]);
    hvd_rendezvous_stop(job->rendezvous);
}

int job_run(const struct options *options, const struct settings *settings, const struct hosts *hosts,
            struct guard *guard)
{
    struct job job = {.options = options,
                      .settings = settings,
                      .hosts = hosts,
                      .size = hosts->size,
                      .guard = guard,
                      .failed = -1};
    hvd_status status;
    if (uv_loop_init(&job.loop)) {
        fprintf(stderr, "horovodrun: can't make an event loop: too many open files?\n");
        return 1;
    }
    if (job_prepare(&job, &status) == HVD_OK) {
        start_ranks(&job);
        job_loop(&job);
    } else {
        fprintf(stderr, "horovodrun: %s\n", status.text);
        job.exit_code = 1;
    }
    guard_kill_descendants();
    job_free(&job);
    return job.exit_code;
}
