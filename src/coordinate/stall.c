/* stall.c - finds requests that some ranks have not submitted, and writes the warning about them. Under the
 * progress lock. */
#include "coordinate/stall.h"

#include "base/clock.h"
#include "base/status.h"
#include "coordinate/close.h"
#include "coordinate/join.h"

#include <stdlib.h>
#include <string.h>

#define CHECKS_PER_PERIOD 8

/* Returns the shorter one of the two times that are set; 0: neither is set. */
static int64_t period(const struct coordinator *c)
{
    int64_t warning = c->config.stall_time, end = c->config.stall_shutdown_time;
    return !end || (warning && warning < end) ? warning : end;
}

/* Returns how long a name waits before its first report, and between reports. */
static int64_t report_interval(const struct coordinator *c)
{
    if (is_root(c))
        return c->config.stall_time ? c->config.stall_time : INT64_MAX;
    return period(c) / 4;
}

int64_t stall_next(const struct coordinator *c)
{
    return c->table.open && period(c) ? c->stall_checked + period(c) / CHECKS_PER_PERIOD : INT64_MAX;
}

hvd_code stall_receive(struct coordinator *c, int child, struct wire_reader *reader, hvd_status *status)
{
    struct stall_report *stall = calloc(1, sizeof *stall);
    const char *name;
    uint32_t length;
    if (!stall)
        return status_no_memory(status);
    stall->child = child;
    int first = c->config.tree.children[child], last = tree_child_last(&c->config.tree, child);
    bool good = stall_get(reader, first, last, &name, &length, stall);
    /* The name has a round in progress: the child's own report arrives later on the same link. */
    struct entry *entry = good ? table_entry(&c->table, name, length) : NULL;
    if (!entry || !table_open_round(&c->table, entry, c->now)) {
        free(stall);
        return good ? status_no_memory(status) : status_set(status, HVD_REFUSED, "a malformed stall");
    }
    stall_drop(entry, child);
    stall->next = entry->round->stalls;
    entry->round->stalls = stall;
    if (!is_root(c)) { /* forwarded at once, otherwise each level would add its own delay */
        entry->round->warned = 0;
        c->stall_received = true;
    }
    return HVD_OK;
}

static struct rank_set missing_ranks(const struct coordinator *c, const struct entry *entry)
{
    struct rank_set missing = {0};
    const struct tree_node *tree = &c->config.tree;
    if (!entry->round->own && !c->join)
        rank_set_add(&missing, tree->place, tree->place);
    for (int i = 0; i < tree->child_count; i++) {
        if (round_has_child(entry, i) || child_is_absent(c, i))
            continue;
        const struct stall_report *stall = entry->round->stalls;
        while (stall && stall->child != i)
            stall = stall->next;
        if (stall)
            rank_set_merge(&missing, &stall->missing);
        else
            rank_set_add(&missing, tree->children[i], tree_child_last(tree, i));
    }
    return missing;
}

/* At the root: returns the missing ranks of the job, without joined ranks that a subtree may contain. */
static struct rank_set name_missing(const struct coordinator *c, const struct rank_set *missing)
{
    struct rank_set named = {.others = missing->others};
    for (int i = 0; i < missing->count; i++) {
        for (int place = missing->ranges[i].first; place <= missing->ranges[i].last; place++) {
            if (!join_has(c, place))
                rank_set_add(&named, name_at(&c->config, place), name_at(&c->config, place));
        }
    }
    return named;
}

static int64_t waited_for(const struct entry *entry, int64_t now)
{
    int64_t waited = now - entry->round->since;
    for (const struct stall_report *stall = entry->round->stalls; stall; stall = stall->next)
        waited = stall->waited > waited ? stall->waited : waited;
    return waited;
}

static void give_up(struct coordinator *c, const struct entry *entry, int64_t waited,
                    const struct rank_set *missing)
{
    char ranks[256], title[REQUEST_NAME_LIMIT];
    hvd_status cause;
    status_set(&cause, HVD_TIMED_OUT,
               "%.200s has waited %lld s for %s, which did not submit it; the job ends now, as "
               "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS says",
               entry_title(entry, title, sizeof title), (long long)(waited / 1000000000),
               rank_set_text(missing, ranks, sizeof ranks));
    status_blame(&cause, HVD_CAUSE_STALL, missing->count ? missing->ranges[0].first : -1, NULL);
    fail(c, -1, &cause);
}

static hvd_code send_stalled(struct coordinator *c, const struct entry *entry, int64_t waited,
                             const struct rank_set *missing, hvd_status *status)
{
    struct stall_report stall = {.waited = waited, .missing = *missing};
    stall.operation = round_operation(entry->round, &stall.grouped);
    c->out.length = 0;
    wire_put_u8(&c->out, MESSAGE_STALLED);
    stall_put(&c->out, entry, &stall);
    return send_out(c, c->config.tree.parent, status);
}

static hvd_code report_or_warn(struct coordinator *c, struct entry *entry, int64_t now, hvd_status *status)
{
    struct rank_set missing = missing_ranks(c, entry);
    int64_t waited = waited_for(entry, now);
    entry->round->warned = now;
    if (!is_root(c))
        return send_stalled(c, entry, waited, &missing, status);
    const struct coordinator_output *output = &c->config.output;
    char title[REQUEST_NAME_LIMIT];
    struct rank_set named = name_missing(c, &missing);
    if (c->config.stall_shutdown_time && waited >= c->config.stall_shutdown_time)
        give_up(c, entry, waited, &named);
    else
        output->stalled(output->owner, entry_title(entry, title, sizeof title), waited, &named);
    return HVD_OK;
}

/* A check that is late by its whole interval follows a standstill of this rank. What was sent meanwhile is
 * unread, and the others may have stood still as well: that time does not count. */
static void leave_out_standstill(struct coordinator *c, int64_t now)
{
    int64_t each = period(c) / CHECKS_PER_PERIOD, still = now - c->stall_checked - each;
    size_t cursor = 0;
    struct entry *entry;
    while (still > each && (entry = map_next(&c->table.names, &cursor))) {
        struct round *round = entry->round;
        if (!round)
            continue;
        round->since = clock_earlier(round->since + still, now);
        if (round->warned)
            round->warned = clock_earlier(round->warned + still, now);
    }
}

hvd_code stall_check(struct coordinator *c, int64_t now, hvd_status *status)
{
    if ((now < stall_next(c) && !c->stall_received) || c->state != STATE_OPEN)
        return HVD_OK;
    leave_out_standstill(c, now);
    c->stall_received = false;
    int64_t interval = report_interval(c), end = c->config.stall_shutdown_time;
    size_t cursor = 0;
    struct entry *entry;
    c->stall_checked = now;
    while (c->state == STATE_OPEN && (entry = map_next(&c->table.names, &cursor))) {
        struct round *round = entry->round;
        /* Once the whole subtree has submitted it, the missing ranks are elsewhere in the tree. */
        if (!round || round->phase != ROUND_COUNTING)
            continue;
        int64_t waited = waited_for(entry, now);
        bool ends = is_root(c) && end && waited >= end;
        if (ends || (waited >= interval && (!round->warned || now - round->warned >= interval)))
            TRY(report_or_warn(c, entry, now, status));
    }
    return HVD_OK;
}

/* ---- the warning --------------------------------------------------------------------------------------- */

/* Finds or adds the group of these ranks; returns NULL if there is no room for one more. */
static struct stall_group *find_group(struct stall_summary *summary, const char *ranks)
{
    for (int i = 0; i < summary->count; i++) {
        if (strncmp(summary->groups[i].ranks, ranks, sizeof summary->groups[i].ranks - 1) == 0)
            return &summary->groups[i];
    }
    if (summary->count == STALL_GROUPS)
        return NULL;
    struct stall_group *group = &summary->groups[summary->count++];
    *group = (struct stall_group){0};
    append_text(group->ranks, sizeof group->ranks, "%s", ranks);
    return group;
}

void stall_add(struct stall_summary *summary, const char *ranks, const char *name, double seconds)
{
    if (seconds > summary->longest)
        summary->longest = seconds;
    struct stall_group *group = find_group(summary, ranks);
    if (!group) {
        summary->left_out++;
        return;
    }
    if (group->count++ < STALL_NAMES) /* a long name is cut in the middle of its text, not at the seconds */
        append_text(group->names, sizeof group->names, "%s%.45s%s (%.0f s)", group->count > 1 ? ", " : "",
                    name, strlen(name) > 45 ? "..." : "", seconds);
}

void stall_text(struct stall_summary *summary, int process_set, const struct stall_limits *limits, char *text,
                size_t capacity)
{
    *text = '\0';
    append_text(text, capacity, "some ranks have waited for others for more than %.15g s", limits->warning);
    if (process_set)
        append_text(text, capacity, ", in process set %d", process_set);
    append_text(text, capacity, ". Who has not submitted what:");
    for (int i = 0; i < summary->count; i++) {
        const struct stall_group *group = &summary->groups[i];
        append_text(text, capacity, "\n  %s: %s", group->ranks, group->names);
        if (group->count > STALL_NAMES)
            append_text(text, capacity, " and %d more", group->count - STALL_NAMES);
    }
    if (summary->left_out)
        append_text(text, capacity, "\n  others: %d more", summary->left_out);
    append_text(
        text, capacity,
        "\nA rank that has stopped, is slow, skips an operation, or took another branch than the rest is the "
        "usual cause; `horovodrun --status` shows what it does.");
    if (limits->shutdown > 0)
        append_text(text, capacity, "\nThe job ends with an error when the wait reaches %.15g s (in %.0f s).",
                    limits->shutdown,
                    limits->shutdown > summary->longest ? limits->shutdown - summary->longest : 0);
    else
        append_text(text, capacity,
                    "\nThe ranks go on waiting; --stall-check-shutdown-time-seconds would end the job.");
    *summary = (struct stall_summary){0};
}
