/* agents_lost.c - finds out which hosts have ended or are silent, and reports them. One thread, the loop's.
 */
#include "agents_lost.h"
#include "say.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/status.h"

#include <signal.h>
#include <stdio.h>

/* Names the processes: " with ranks 2 to 3", or " with processes 2, 7", since those of a host of an elastic
 * job need not follow each other. */
static void name_processes(const struct table *table, const struct remote *remote, char *text,
                           size_t capacity)
{
    char numbers[512] = "";
    int count = 0, last = -1;
    for (int i = 0; i < table->count; i++) {
        const struct process *process = table->list[i];
        if (process->remote != remote || process->gone)
            continue;
        last = table->elastic ? process->slot : process->place.rank;
        if (table->elastic || !count)
            append_text(numbers, sizeof numbers, "%s%d", count ? ", " : "", last);
        count++;
    }
    if (!table->elastic && count > 1)
        append_text(numbers, sizeof numbers, " to %d", last);
    text[0] = '\0';
    if (count)
        append_text(text, capacity, table->elastic ? " with process%s %s" : " with rank%s %s",
                    count == 1       ? ""
                    : table->elastic ? "es"
                                     : "s",
                    numbers);
}

/* Returns the rank of the first one, -1 if there was none. */
static int lose_processes(const struct table *table, const struct remote *remote)
{
    int first = -1;
    for (int i = 0; i < table->count; i++) {
        struct process *process = table->list[i];
        if (process->remote != remote)
            continue;
        process_close_outputs(process);
        if (process->gone)
            continue;
        first = first < 0 ? process->place.rank : first;
        process->running = false;
        process->gone = true;
        process->ended = clock_now();
    }
    return first;
}

void agents_lose(struct remote *remote, enum event_kind kind, const char *why)
{
    struct table *table = remote->table;
    struct agents *agents = table->agents;
    char processes[600];
    remote_end(remote);
    if (table->attached)
        say(table, "lost host %s, whose ranks can't be seen any longer: %s", remote_host(remote)->name, why);
    if (agents->input_to == remote)
        agents->input_ended = true; /* nobody reads it */
    name_processes(table, remote, processes, sizeof processes);
    int first = lose_processes(table, remote);
    bool matters = first >= 0 || (table->elastic && !remote->released);
    if (!matters)
        return;
    if (!table->ending)
        say(table, "lost host %s%s: %s%s", remote_host(remote)->name, processes, why,
            table->elastic ? "; the others go on" : "");
    hvd_fault fault = {.struct_size = sizeof fault, .rank = -1};
    status_set(&fault.status, HVD_PEER_LOST, "lost host %s: %s", remote_host(remote)->name, why);
    status_blame(&fault.status, HVD_CAUSE_HOST, first, remote_host(remote)->name);
    struct event event = {.kind = kind, .host = remote->host, .fault = &fault, .since = remote->frames.last};
    table->happened(table, &event);
}

/* Returns true if the other hosts are silent as well. Heartbeats are frequent enough that a host which can be
 * reached is never silent for half of the limit. */
static bool others_are_silent(const struct table *table, double limit)
{
    int count = 0;
    for (int i = 0; i < table->agents->count; i++) {
        const struct remote *remote = table->agents->list[i];
        if (remote->state != REMOTE_STARTED || remote_host(remote)->local)
            continue;
        if (!frames_silent(&remote->frames, limit / 2))
            return false;
        count++;
    }
    return count > 1;
}

/* Patience has no use once the job is ending, nor if ranks, which have heartbeats of their own, have lost
 * each other and wait for those that are left. */
static double patience(const struct table *table)
{
    return table->ending || table->waited ? 1 : LAUNCHER_PATIENCE;
}

void agents_check_end(struct remote *remote)
{
    struct table *table = remote->table;
    char why[FAULT_LIMIT];
    enum event_kind kind = EVENT_HOST_LOST;
    double limit = table->settings->timeout_seconds * patience(table);
    if (remote->state == REMOTE_ENDED)
        return;
    if (remote->state > REMOTE_CALLED && frames_silent(&remote->frames, limit)) {
        if (remote->running)
            kill(remote->pid, SIGKILL);
        kind = EVENT_HOST_SILENT;
        snprintf(why, sizeof why, "it has been silent for %g s%s", limit,
                 others_are_silent(table, limit) ? ", as all others: this host is cut off; is its network up?"
                                                 : "");
    } else if (remote_has_ended(remote)) {
        remote_explain(remote, why, sizeof why);
    } else {
        return;
    }
    if (remote->state == REMOTE_STARTED || (table->elastic && remote->state == REMOTE_PREPARED)) {
        agents_lose(remote, kind, why);
    } else {
        remote_fail(remote, 1, "%s", why);
        remote_end(remote);
    }
}
