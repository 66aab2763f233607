/* say.c - writes the messages of the launcher and of agents about ranks, to their stderr. One thread, the
 * loop's. */
#include "say.h"
#include "guard.h"
#include "starter.h"

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
    if (table->starter->said)
        table->starter->said(table, line, used);
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

static bool has_raised(const struct process *process)
{
    return process->fault && !process->fault->status.code && *process->fault->exception;
}

void say_describe(const struct process *process, char *text, size_t capacity)
{
    const hvd_fault *fault = process->fault;
    char end[64];
    text[0] = '\0';
    if (has_raised(process)) {
        append_text(text, capacity, "raised %s", fault->exception);
        if (*fault->file)
            append_text(text, capacity, " (%s, line %d, in %s)", fault->file, (int)fault->line,
                        fault->function);
        append_text(text, capacity, " and ");
    }
    append_text(text, capacity, "%s", outcome(process, end, sizeof end));
    static const char *const killers[] = {
        [KILLER_UNKNOWN] = " (by somebody, or by the kernel if memory ran out: see dmesg)",
        [KILLER_KERNEL] = " (by the kernel: the memory of its container, batch job or host ran out)",
        [KILLER_OTHER] = " (by somebody; the kernel has not reported that memory ran out)"};
    if (process->signal == SIGKILL && (unsigned)process->killer < sizeof killers / sizeof *killers)
        append_text(text, capacity, "%s", killers[process->killer]);
}

void say_failure(struct process *process)
{
    char text[1200];
    struct table *table = process->table;
    if (table->size == 1) {
        say_describe(process, text, sizeof text);
        say(table, "rank %d (pid %d) %s", process->place.rank, process->pid, text);
    } else { /* the end of the job has the rest */
        say(table, "rank %d (pid %d) %s; the others get %g s to end by themselves", process->place.rank,
            process->pid, outcome(process, text, sizeof text), table->settings->grace_seconds);
    }
}

/* The engine of a rank may have stopped since, because the first one has left. */
static bool raised_the_same(const struct process *process, const struct process *first)
{
    return first && process->fault && first->fault && *first->fault->exception &&
           strcmp(process->fault->exception, first->fault->exception) == 0;
}

/* In an elastic job processes keep their number, while several may have had the same rank. */
static int number_of(const struct process *process)
{
    return process->table->discovery ? process->slot : process->place.rank;
}

static const char *title_of(const struct table *table)
{
    return table->discovery ? "process" : "rank";
}

/* The end of a process that its elastic job has sent away is no news. */
static bool is_listed(const struct process *process, const struct process *first)
{
    bool sent_away = process->table->discovery && process->signalled;
    return process != first && process->pid && process->exit_code != 0 && !sent_away;
}

/* Returns true if the two have consecutive ranks, and can be described together. */
static bool are_alike(const struct process *one, const struct process *next, const struct process *first)
{
    return one != first && next != first && number_of(next) == number_of(one) + 1 &&
           is_listed(next, first) == is_listed(one, first) && !next->pid == !one->pid &&
           next->exit_code == one->exit_code && next->signal == one->signal &&
           raised_the_same(next, first) == raised_the_same(one, first);
}

/* "after it: ranks 0-2 raised the same and ended with exit code 1, rank 4 was killed by SIGTERM" */
static void say_others(struct table *table, const struct process *first)
{
    char line[1024] = "", text[64];
    int named = 0, left = 0;
    for (int i = 0, last; i < table->count; i = last + 1) {
        const struct process *process = table->list[i];
        for (last = i; last + 1 < table->count; last++) {
            if (!are_alike(table->list[last], table->list[last + 1], first))
                break;
        }
        if (!is_listed(process, first))
            continue;
        if (named++ >= NAMED_OTHERS) {
            left += last - i + 1;
            continue;
        }
        append_text(line, sizeof line, "%s%s%s %d", *line ? ", " : "", title_of(table),
                    last == i          ? ""
                    : table->discovery ? "es"
                                       : "s",
                    number_of(process));
        if (last > i)
            append_text(line, sizeof line, "-%d", number_of(table->list[last]));
        append_text(line, sizeof line, " %s%s", raised_the_same(process, first) ? "raised the same and " : "",
                    outcome(process, text, sizeof text));
    }
    if (left)
        append_text(line, sizeof line, ", and %d more failed", left);
    if (named)
        say(table, "after it: %s", line);
}

void say_first_failure(const struct process *process, const hvd_fault *cause, char verdict[VERDICT_LIMIT])
{
    struct table *table = process->table;
    const struct output *errors = &process->outputs[OUTPUT_STDERR];
    bool complete = cause || has_raised(process);
    char text[1200];
    if (cause) {
        snprintf(verdict, VERDICT_LIMIT, "the job failed after %.3f s: %s", seconds(process),
                 cause->status.text);
    } else {
        say_describe(process, text, sizeof text);
        snprintf(verdict, VERDICT_LIMIT, "the first to fail was %s %d (pid %d) on %s: it %s after %.3f s",
                 title_of(table), number_of(process), process->pid, process_host(process)->name, text,
                 seconds(process));
    }
    if (table->size == 1)
        return;
    say_others(table, cause ? NULL : process);
    say(table, "%s%s", verdict,
        complete        ? ""
        : errors->lines ? "; its last lines on stderr:"
                        : " and wrote nothing to stderr");
    const char *line;
    for (unsigned i = 0; !complete && (line = output_last_line(errors, i)); i++)
        say(table, "  %s", line);
}
