/* say.c - messages of the launcher about ranks, to its stderr. One thread, the loop's. */
#include "say.h"
#include "guard.h"

#include "base/clock.h"
#include "base/status.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NAMED_OTHERS 8

void job_say(struct job *job, const char *format, ...)
{
    char line[2200] = "horovodrun: ";
    size_t used = strlen(line), limit = sizeof line - 1;
    va_list arguments;
    va_start(arguments, format);
    format_text(line + used, limit - used, format, arguments);
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

const char *say_outcome(int exit_code, int signal, char *text, size_t capacity)
{
    if (signal)
        snprintf(text, capacity, "was killed by %s", signal_name(signal));
    else
        snprintf(text, capacity, "ended with exit code %d", exit_code);
    return text;
}

static const char *outcome(const struct rank *rank, char *text, size_t capacity)
{
    return say_outcome(rank->exit_code, rank->signal, text, capacity);
}

static double seconds(const struct rank *rank)
{
    return (double)(rank->ended - rank->started) / CLOCK_SECOND;
}

void say_job(struct job *job)
{
    if (!job->options->verbose)
        return;
    char hosts[1024] = "";
    for (int i = 0; i < job->hosts->count; i++)
        append_text(hosts, sizeof hosts, i ? ", %s:%d" : "%s:%d", job->hosts->list[i].name,
                    job->hosts->list[i].ranks);
    job_say(job, "job %s: %d ranks on %s, rendezvous at %s", job->id, job->size, hosts,
            job->rendezvous_address);
}

void say_rank_start(struct rank *rank, char *const *environment)
{
    if (!rank->job->options->verbose)
        return;
    char text[2048] = "";
    for (char *const *entry = environment; *entry; entry++) {
        /* The rank's settings, without the secret: this text is for a log. */
        if (strncmp(*entry, "HOROVOD_", 8) == 0 && strncmp(*entry, "HOROVOD_SECRET=", 15) != 0)
            append_text(text, sizeof text, " %s", *entry);
    }
    for (char **word = rank->job->options->command; *word; word++)
        append_text(text, sizeof text, " %s", *word);
    job_say(rank->job, "rank %d (pid %d) on %s:%s", rank->rank, rank->pid, rank_host(rank)->name, text);
}

void say_rank_end(struct rank *rank)
{
    char text[64];
    if (rank->job->options->verbose)
        job_say(rank->job, "rank %d (pid %d) %s after %.3f s", rank->rank, rank->pid,
                outcome(rank, text, sizeof text), seconds(rank));
}

static const char *hint(const struct rank *rank)
{
    return rank->signal == SIGKILL ? " (by somebody, or by the kernel if memory ran out: see dmesg)" : "";
}

void say_failure(struct rank *rank)
{
    char text[64], others[96] = "";
    if (rank->job->size > 1)
        snprintf(others, sizeof others, "; the others get %g s to end by themselves",
                 rank->job->settings->grace_seconds);
    job_say(rank->job, "rank %d (pid %d) %s%s%s", rank->rank, rank->pid, outcome(rank, text, sizeof text),
            hint(rank), others);
}

static void report_others(struct job *job)
{
    char line[1024] = "", text[64];
    int failed = 0;
    for (int i = 0; i < job->size; i++) {
        const struct rank *rank = &job->ranks[i];
        if (i == job->failed || !rank->pid || rank->exit_code == 0)
            continue;
        if (failed++ < NAMED_OTHERS)
            append_text(line, sizeof line, "%srank %d %s", *line ? ", " : "", i,
                        outcome(rank, text, sizeof text));
    }
    if (failed > NAMED_OTHERS)
        append_text(line, sizeof line, ", and %d more failed", failed - NAMED_OTHERS);
    if (failed)
        job_say(job, "after it: %s", line);
}

const char *report_cause(const struct rank *rank)
{
    static const char name[] = "HorovodInternalError: "; /* as Python ends a traceback */
    const struct output *errors = &rank->outputs[OUTPUT_STDERR];
    const char *line, *found = NULL;
    for (unsigned i = 0; !found && (line = output_last_line(errors, i)); i++)
        found = strstr(line, name);
    return found ? found + strlen(name) : NULL;
}

void say_first_failure(struct job *job)
{
    if (job->failed < 0 || job->size == 1)
        return;
    const struct rank *rank = &job->ranks[job->failed];
    const struct output *errors = &rank->outputs[OUTPUT_STDERR];
    const char *cause = rank->signal ? NULL : report_cause(rank);
    char text[64];
    report_others(job);
    if (cause) {
        job_say(job, "the job failed after %.3f s: %s", seconds(rank), cause);
        return;
    }
    job_say(job, "the first to fail was rank %d (pid %d) on %s: it %s after %.3f s%s", rank->rank, rank->pid,
            rank_host(rank)->name, outcome(rank, text, sizeof text), seconds(rank),
            errors->lines ? "; its last lines on stderr:" : " and wrote nothing to stderr");
    const char *line;
    for (unsigned i = 0; (line = output_last_line(errors, i)); i++)
        job_say(job, "  %s", line);
}
