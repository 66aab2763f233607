/* elastic.c - see elastic.h. An input of the membership that follows from its own actions waits until all of
 * these are carried out. */
#include "elastic.h"
#include "elastic_epochs.h"
#include "rlimits.h"
#include "say.h"
#include "starter.h"

#include "base/clock.h"
#include "base/status.h"
#include "rendezvous/slots.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK      (CLOCK_SECOND / 2) /* of the membership's deadline, at least as often */
#define STANDSTILL CLOCK_SECOND       /* between two checks, at least: this process has stood still */

/* ---- inputs ----------------------------------------------------------------------------------------------
 */

int64_t elastic_now(struct elastic *elastic)
{
    int64_t now = clock_now(), passed = now - elastic->checked;
    if (elastic->waits && passed > STANDSTILL)
        elastic->still += passed - STANDSTILL;
    elastic->checked = now;
    return now - elastic->still;
}

/* An input may replace the plan to which actions that are still to be done refer, so it waits for their end.
 */
static void defer(struct elastic *elastic, enum elastic_input_kind kind, int index)
{
    struct elastic_input *inputs =
        realloc(elastic->inputs, ((size_t)elastic->input_count + 1) * sizeof *inputs);
    if (!inputs) {
        say(elastic->table, "out of memory for what happens to hosts and processes");
        membership_stop(elastic->membership, elastic_now(elastic), 1, MEMBERSHIP_TERM);
        return;
    }
    elastic->inputs = inputs;
    inputs[elastic->input_count++] = (struct elastic_input){kind, index};
}

static void report_not_started(struct elastic *elastic, struct process *process)
{
    process->gone_reported = true;
    membership_not_started(elastic->membership, elastic_now(elastic), process->slot, process->exit_code);
}

bool elastic_take_input(struct elastic *elastic)
{
    struct membership *membership = elastic->membership;
    int64_t now = elastic_now(elastic);
    if (!elastic->input_count)
        return false;
    const struct elastic_input input = elastic->inputs[0];
    elastic->input_count--;
    memmove(elastic->inputs, elastic->inputs + 1, (size_t)elastic->input_count * sizeof *elastic->inputs);
    if (input.kind == ELASTIC_HOST_PREPARED)
        membership_host_prepared(membership, now, input.index);
    else if (input.kind == ELASTIC_HOST_UNUSABLE)
        membership_host_failed(membership, now, input.index);
    else
        report_not_started(elastic, table_find(elastic->table, input.index));
    return true;
}

/* ---- hosts ----------------------------------------------------------------------------------------------
 */

/* Membership numbers hosts in the order in which they become known; the table's hosts have the same numbers.
 */
static hvd_code add_new_hosts(struct elastic *elastic, const struct hosts *found, hvd_status *status)
{
    struct hosts *hosts = elastic->table->hosts;
    for (int i = 0; i < found->count; i++) {
        if (!hosts_find(hosts, &found->list[i]))
            TRY(hosts_append(hosts, &found->list[i], status));
    }
    return HVD_OK;
}

/* Entries of one name may differ in user or port. */
static void name_entry(const struct host *host, char *name, size_t capacity)
{
    *name = '\0';
    append_text(name, capacity, "%s%s%s", host->user, *host->user ? "@" : "", host->name);
    if (host->port)
        append_text(name, capacity, " port %d", host->port);
}

static void offer(struct elastic *elastic, const struct hosts *found)
{
    hvd_status status;
    struct membership_host *offered = calloc((size_t)found->count + 1, sizeof *offered);
    char(*names)[HOST_TITLE] = calloc((size_t)found->count + 1, sizeof *names);
    if (!offered || !names || add_new_hosts(elastic, found, &status)) {
        say(elastic->table, "out of memory for the hosts that were found");
        free(offered);
        free(names);
        return;
    }
    for (int i = 0; i < found->count; i++) {
        name_entry(hosts_find(elastic->table->hosts, &found->list[i]), names[i], sizeof names[i]);
        offered[i] = (struct membership_host){names[i], (int)found->list[i].slots};
    }
    membership_discovered(elastic->membership, elastic_now(elastic), offered, found->count);
    free(offered);
    free(names);
    elastic->act(elastic->table);
}

static void on_found(struct discovery *discovery, const struct hosts *hosts)
{
    offer(discovery->owner, hosts);
}

static void on_discovery_failed(struct discovery *discovery)
{
    struct elastic *elastic = discovery->owner;
    membership_stop(elastic->membership, elastic_now(elastic), 1, MEMBERSHIP_TERM);
    elastic->act(elastic->table);
}

static void prepare(struct elastic *elastic, int host)
{
    struct table *table = elastic->table;
    hvd_status status;
    if (!table->starter->prepare) {
        defer(elastic, ELASTIC_HOST_PREPARED, host);
    } else if (table->starter->prepare(table, host, &status)) {
        say(table, "host %s: %s", table->hosts->list[host].name, status.text);
        defer(elastic, ELASTIC_HOST_UNUSABLE, host);
    }
}

static void release(const struct elastic *elastic, int host)
{
    struct table *table = elastic->table;
    if (table->starter->release)
        table->starter->release(table, host);
}

/* ---- processes ------------------------------------------------------------------------------------------
 */

static void start(struct elastic *elastic, const struct membership_action *action)
{
    struct table *table = elastic->table;
    hvd_status status;
    struct process *process = elastic_add_process(elastic, action);
    if (!process) {
        say(table, "out of memory for process %d", action->slot);
        membership_stop(elastic->membership, elastic_now(elastic), 1, MEMBERSHIP_TERM);
        return;
    }
    hvd_code code = rlimits_check(table, table_count_running(table) + 1, !table->agents, &status);
    if (code || table->starter->start(process, &status)) {
        process->gone = true;
        process->ended = clock_now();
        if (!table->ending)
            say(table, "%s", status.text);
        process_close_outputs(process);
        defer(elastic, ELASTIC_NOT_STARTED, process->slot);
    }
}

static void end(struct elastic *elastic, const struct membership_action *action)
{
    static const char *const reasons[] = {[MEMBERSHIP_REMOVED] = "its place was taken away",
                                          [MEMBERSHIP_HOST_OUT] = "another process of its host has failed",
                                          [MEMBERSHIP_LEAVES] = "it was asked to leave",
                                          [MEMBERSHIP_HUNG] = "it did not come back when all others did",
                                          [MEMBERSHIP_CUT_OFF] = "its connections break again and again",
                                          [MEMBERSHIP_OVER] = "the job ends"};
    static const enum step steps[] = {[MEMBERSHIP_KEEP] = STEP_NONE,
                                      [MEMBERSHIP_OWN] = STEP_OWN,
                                      [MEMBERSHIP_TERM] = STEP_TERM,
                                      [MEMBERSHIP_KILL] = STEP_KILL};
    struct process *process = table_find(elastic->table, action->slot);
    if (!process)
        return;
    process->apart = true;
    elastic_send_news(elastic, process,
                      (hvd_news){.kind = HVD_NEWS_OUT, .rank = -1, .reason = reasons[action->why]});
    if (action->why != MEMBERSHIP_OVER && !process->gone)
        say(elastic->table, "process %d (pid %d) is to end: %s", process->slot, process->pid,
            reasons[action->why]);
    process_end(process, steps[action->step]);
}

void elastic_lose_host(struct elastic *elastic, int host)
{
    for (int i = 0; i < elastic->table->count; i++) {
        struct process *process = elastic->table->list[i];
        if (process->place.host != host || process->gone_reported)
            continue;
        process->apart = process->gone_reported = true;
        elastic_send_news(
            elastic, process,
            (hvd_news){.kind = HVD_NEWS_OUT, .rank = -1, .reason = "horovodrun has lost its host"});
    }
}

void elastic_say_end(struct process *process)
{
    char text[1200];
    say_describe(process, text, sizeof text);
    if (process->apart)
        say(process->table, "process %d (pid %d) %s before it took part", process->slot, process->pid, text);
    else
        say(process->table, "process %d (pid %d), rank %d of epoch %d, %s; the others go on", process->slot,
            process->pid, process->place.rank, process->epoch, text);
}

/* ---- reports --------------------------------------------------------------------------------------------
 */

/* The signal that was meant for a process which the job has ended already, or ends by SIGTERM, takes effect.
 */
static void leave(struct elastic *elastic, struct process *process)
{
    if (process->step >= STEP_TERM) {
        process_signal(process, SIGTERM);
    } else if (!process->leaves) {
        say(elastic->table, "process %d (pid %d) was asked to leave, which it does once the others can go on",
            process->slot, process->pid);
        process->leaves = true;
        membership_leaves(elastic->membership, elastic_now(elastic), process->slot);
    }
}

static void handle_report(struct elastic *elastic, struct process *process, const struct slot_report *report)
{
    struct membership *membership = elastic->membership;
    const struct membership_wait wait = {report->after, report->holds_state, report->lost_rank};
    if (report->leaves)
        leave(elastic, process);
    int64_t now = elastic_now(elastic);
    /* A process of the first epoch is in it from its start. */
    bool entered = report->kind == SLOT_ENTERED && process->epoch == 0;
    elastic->table->waited = elastic->table->waited || report->kind == SLOT_WAITS;
    if (entered || report->kind == SLOT_READY || report->kind == SLOT_WAITS)
        membership_waits(membership, now, process->slot, &wait);
    else if (report->kind == SLOT_HAS_DONE)
        membership_done(membership, now, process->slot);
    elastic->act(elastic->table);
}

void elastic_read_reports(struct elastic *elastic)
{
    const struct table *table = elastic->table;
    hvd_entry entry = {.struct_size = sizeof entry};
    hvd_status status;
    while (elastic->watch && !hvd_watch_next(elastic->watch, 0, &entry, &status)) {
        char *rest;
        struct slot_report report;
        long slot = strtol(entry.key, &rest, 10);
        struct process *process =
            rest != entry.key && !*rest && slot >= 0 && slot <= INT_MAX ? table_find(table, (int)slot) : NULL;
        if (process && slot_report_read(&report, entry.value, entry.length))
            handle_report(elastic, process, &report);
    }
}

static void on_reports(uv_poll_t *poll, int error, int events)
{
    (void)error;
    (void)events;
    elastic_read_reports(poll->data);
}

/* ---- all of it ------------------------------------------------------------------------------------------
 */

static void on_timer(uv_timer_t *timer)
{
    struct elastic *elastic = timer->data;
    elastic_read_reports(elastic); /* libuv calls timers first */
    membership_tick(elastic->membership, elastic_now(elastic));
    elastic->act(elastic->table);
}

static void forget(struct process *process)
{
    char slot[SLOT_NAME_LIMIT];
    hvd_status ignored; /* the keys take room, no more */
    snprintf(slot, sizeof slot, "%d", process->slot);
    hvd_rendezvous_forget_slot(process->table->rendezvous, process->table->id, slot, &ignored);
}

void elastic_turn(struct elastic *elastic)
{
    struct table *table = elastic->table;
    for (int i = 0; i < table->count; i++) {
        struct process *process = table->list[i];
        if (!process->gone || process->gone_reported || !process->pid)
            continue;
        process->gone_reported = true;
        membership_gone(elastic->membership, elastic_now(elastic), process->slot);
        elastic->act(table);
    }
    elastic->act(table);
    table_release(table, forget);
    int64_t deadline = membership_deadline(elastic->membership);
    int64_t left = deadline - elastic_now(elastic); /* both are positive */
    elastic->waits = deadline != INT64_MAX && !table->ending;
    if (!elastic->waits)
        uv_timer_stop(&elastic->timer);
    else
        uv_timer_start(&elastic->timer, on_timer,
                       left > 0 ? (uint64_t)(clock_earlier(left, CHECK) / (CLOCK_SECOND / 1000)) + 1 : 0, 0);
}

static void send_end(struct elastic *elastic, const struct membership_action *action)
{
    const char *reason = *action->text       ? action->text
                         : action->exit_code ? "it has failed"
                                             : "its work is complete";
    for (int i = 0; i < elastic->table->count; i++) {
        if (!elastic->table->list[i]->gone)
            elastic_send_news(elastic, elastic->table->list[i],
                              (hvd_news){.kind = HVD_NEWS_OVER, .rank = -1, .reason = reason});
    }
}

void elastic_act(struct elastic *elastic, const struct membership_action *action)
{
    struct table *table = elastic->table;
    switch (action->kind) {
    case MEMBERSHIP_PREPARE:
        prepare(elastic, action->host);
        break;
    case MEMBERSHIP_RELEASE:
        release(elastic, action->host);
        break;
    case MEMBERSHIP_EPOCH:
        if (!elastic_begin_epoch(elastic, action->epoch))
            membership_stop(elastic->membership, elastic_now(elastic), 1, MEMBERSHIP_TERM);
        break;
    case MEMBERSHIP_START:
        start(elastic, action);
        break;
    case MEMBERSHIP_END:
        end(elastic, action);
        break;
    case MEMBERSHIP_NOTICE:
        elastic_give_notice(elastic, action);
        break;
    case MEMBERSHIP_SAY:
        say(table, "%s", action->text);
        break;
    case MEMBERSHIP_FINISH:
        send_end(elastic, action);
        break;
    default:
        break;
    }
}

hvd_code elastic_open(struct elastic *elastic, hvd_status *status)
{
    struct table *table = elastic->table;
    TRY(hvd_rendezvous_watch_slots(table->rendezvous, table->id, &elastic->watch, status));
    elastic->reports.data = elastic->timer.data = elastic;
    uv_timer_init(&table->loop, &elastic->timer);
    if (uv_poll_init(&table->loop, &elastic->reports, hvd_watch_descriptor(elastic->watch)) ||
        uv_poll_start(&elastic->reports, UV_READABLE, on_reports))
        return status_set(status, HVD_SYSTEM, "can't watch for reports of processes");
    elastic->discovery = (struct discovery){.table = table,
                                            .owner = elastic,
                                            .found = on_found,
                                            .failed = on_discovery_failed,
                                            .output.file = -1};
    if (table->options->discovery_script)
        discovery_open(&elastic->discovery);
    else
        offer(elastic, table->hosts);
    return HVD_OK;
}

void elastic_close(struct elastic *elastic)
{
    discovery_close(&elastic->discovery);
    if (!elastic->watch)
        return;
    uv_close((uv_handle_t *)&elastic->reports, NULL);
    hvd_watch_close(elastic->watch);
    elastic->watch = NULL;
}

void elastic_free(struct elastic *elastic)
{
    if (elastic->discovery.table)
        discovery_free(&elastic->discovery);
    free(elastic->members);
    free(elastic->inputs);
}
