/* say.c - writes the messages of the launcher and of agents about ranks, to their stderr. One thread, the
 * loop's. */
#include "say.h"
#include "guard.h"

#include "base/clock.h"
#include "base/status.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NAMED_OTHERS 8

void say(struct table *table, const char *format, ...)
{
    char line[2200] = "horovodrun: ";
    size_t used = strlen(line), limit = sizeof line - 1;
    va_list arguments;
    va_start(arguments, format);
    format_text(line + used, limit - used, format, arguments);
    va_end(arguments);
    used = strlen(line);
    line[used++] = '\n';
    sink_put(table->err, line, used);
    sink_flush(table->err);
}

const char *say_outcome(int exit_code, int signal, char *text, size_t capacity)
{
    if (signal)
        snprintf(text, capacity, "was killed by %s", signal_name(signal));
    else
        snprintf(text, capacity, "ended with exit code %d", exit_code);
    return text;
}

static const char *outcome(const struct process *process, char *text, size_t capacity)
{
    return say_outcome(process->exit_code, process->signal, text, capacity);
}

static double seconds(const struct process *process)
{
    return (double)(process->ended - process->started) / CLOCK_SECOND;
}

void say_job(struct table *table)
{
    if (!table->options->verbose)
        return;
    char hosts[1024] = "";
    for (int i = 0; i < table->hosts->count; i++)
        append_text(hosts, sizeof hosts, i ? ", %s:%d" : "%s:%d", table->hosts->list[i].name,
                    table->hosts->list[i].ranks);
    say(table, "job %s: %d ranks on %s, rendezvous at %s", table->id, table->size, hosts,
        table->rendezvous_address);
}

void say_process_start(struct process *process, char *const *environment)
{
    if (!process->table->options->verbose)
        return;
    char text[2048] = "";
    for (char *const *entry = environment; *entry; entry++) {
        /* The rank's settings, without the secret: this text is for a log. */
        if (strncmp(*entry, "HOROVOD_", 8) == 0 && strncmp(*entry, "HOROVOD_SECRET=", 15) != 0)
            append_text(text, sizeof text, " %s", *entry);
    }
    for (char **word = process->table->options->command; *word; word++)
        append_text(text, sizeof text, " %s", *word);
    say(process->table, "rank %d (pid %d) on %s:%s", process->place.rank, process->pid,
        process_host(process)->name, text);
}

void say_process_end(struct process *process)
{
    char text[64];
    if (process->table->options->verbose)
        say(process->table, "rank %d (pid %d) %s after %.3f s", process->place.rank, process->pid,
            outcome(process, text, sizeof text), seconds(process));
}

/* "raised KeyError: 'x' (train.py, line 12, in step) and ended with exit code 1" */
static void describe(const struct process *process, char *text, size_t capacity)
{
    const hvd_fault *fault = process->fault;
    char end[64];
    text[0] = '\0';
    if (fault && !fault->status.code && *fault->exception) {
        append_text(text, capacity, "raised %s", fault->exception);
        if (*fault->file)
            append_text(text, capacity, " (%s, line %d, in %s)", fault->file, (int)fault->line,
                        fault->function);
        append_text(text, capacity, " and ");
    }
    append_text(text, capacity, "%s", outcome(process, end, sizeof end));
}

static const char *hint(const struct process *process)
{
    return process->signal == SIGKILL ? " (by somebody, or by the kernel if memory ran out: see dmesg)" : "";
}

void say_failure(struct process *process)
{
    char text[1200], others[96] = "";
    if (process->table->size > 1)
        snprintf(others, sizeof others, "; the others get %g s to end by themselves",
                 process->table->settings->grace_seconds);
    describe(process, text, sizeof text);
    say(process->table, "rank %d (pid %d) %s%s%s", process->place.rank, process->pid, text, hint(process),
        others);
}

static void say_others(struct table *table, const struct process *first)
{
    char line[1024] = "", text[64];
    int failed = 0;
    for (int i = 0; i < table->count; i++) {
        const struct process *process = table->list[i];
        if (process == first || !process->pid || process->exit_code == 0)
            continue;
        if (failed++ < NAMED_OTHERS)
            append_text(line, sizeof line, "%srank %d %s", *line ? ", " : "", process->place.rank,
                        outcome(process, text, sizeof text));
    }
    if (failed > NAMED_OTHERS)
        append_text(line, sizeof line, ", and %d more failed", failed - NAMED_OTHERS);
    if (failed)
        say(table, "after it: %s", line);
}

void say_first_failure(const struct process *process, const hvd_fault *cause, char verdict[VERDICT_LIMIT])
{
    struct table *table = process->table;
    const struct output *errors = &process->outputs[OUTPUT_STDERR];
    char text[1200];
    if (cause) {
        snprintf(verdict, VERDICT_LIMIT, "the job failed after %.3f s: %s", seconds(process),
                 cause->status.text);
    } else {
        describe(process, text, sizeof text);
        snprintf(verdict, VERDICT_LIMIT, "the first to fail was rank %d (pid %d) on %s: it %s after %.3f s",
                 process->place.rank, process->pid, process_host(process)->name, text, seconds(process));
    }
    if (table->size == 1)
        return;
    say_others(table, process);
    if (cause) {
        say(table, "%s", verdict);
        return;
    }
    say(table, "%s%s", verdict,
        errors->lines ? "; its last lines on stderr:" : " and wrote nothing to stderr");
    const char *line;
    for (unsigned i = 0; (line = output_last_line(errors, i)); i++)
        say(table, "  %s", line);
}
