/* stall.c - see stall.h. Every node looks at its open rounds some times per period. One that waits tells its
 * parent after a quarter of it, and every quarter again, so that the root knows the details when it tells the
 * owner. */
#include "coordinate/stall.h"

#include "base/status.h"
#include "coordinate/join.h"

#include <stdlib.h>

#define LOOKS_PER_PERIOD 8

/* The shorter of the two times that are given; 0: none. */
static int64_t period(const struct coordinator *c)
{
    int64_t warning = c->config.stall_time, end = c->config.stall_shutdown_time;
    return !end || (warning && warning < end) ? warning : end;
}

/* How long a name waits before it is told of, and again. */
static int64_t patience(const struct coordinator *c)
{
    if (is_root(c))
        return c->config.stall_time ? c->config.stall_time : INT64_MAX;
    return period(c) / 4;
}

int64_t stall_next(const struct coordinator *c)
{
    return c->table.open && period(c) ? c->stall_looked + period(c) / LOOKS_PER_PERIOD : INT64_MAX;
}

void stall_forget(struct entry *entry, int child)
{
    struct stall_note **at = entry->round ? &entry->round->notes : NULL;
    while (at && *at) {
        struct stall_note *note = *at;
        if (child >= 0 && note->child != child) {
            at = &note->next;
            continue;
        }
        *at = note->next;
        free(note);
    }
}

/* ---- what children tell ---------------------------------------------------------------------------- */

hvd_code stall_receive(struct coordinator *c, int child, struct wire_reader *reader, hvd_status *status)
{
    struct stall_note *note = calloc(1, sizeof *note);
    const char *name;
    uint32_t length;
    if (!note)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for a stalled request");
    note->child = child;
    int first = c->config.tree.children[child], last = tree_child_last(&c->config.tree, child);
    bool good = stall_get(reader, first, last, &name, &length, &note->waited, &note->missing);
    /* Of the present round, which waits for what the child says behind this. */
    struct entry *entry = good ? table_entry(&c->table, name, length) : NULL;
    if (!entry || !table_open_round(&c->table, entry)) {
        free(note);
        return good ? status_set(status, HVD_OUT_OF_MEMORY, "out of memory for a stalled request")
                    : status_set(status, HVD_REFUSED, "a malformed stall");
    }
    stall_forget(entry, child);
    note->next = entry->round->notes;
    entry->round->notes = note;
    if (!is_root(c)) { /* passed on at once, or each level would add its own delay */
        entry->round->warned = 0;
        c->stall_news = true;
    }
    return HVD_OK;
}

/* ---- who is missing -------------------------------------------------------------------------------- */

static const struct stall_note *note_of(const struct entry *entry, int child)
{
    const struct stall_note *note = entry->round->notes;
    while (note && note->child != child)
        note = note->next;
    return note;
}

static struct rank_set missing_ranks(const struct coordinator *c, const struct entry *entry)
{
    struct rank_set missing = {0};
    const struct tree_node *tree = &c->config.tree;
    if (!entry->round->own && !c->join)
        rank_set_add(&missing, tree->rank, tree->rank);
    for (int i = 0; i < tree->child_count; i++) {
        const struct stall_note *note = note_of(entry, i);
        if (round_has_child(entry, i) || child_is_absent(c, i))
            continue;
        if (note)
            rank_set_merge(&missing, &note->missing);
        else
            rank_set_add(&missing, tree->children[i], tree_child_last(tree, i));
    }
    return missing;
}

/* At the root, in the words of the user: a child that is silent may have ranks that have joined. */
static struct rank_set name_missing(const struct coordinator *c, const struct rank_set *missing)
{
    struct rank_set named = {.others = missing->others};
    for (int i = 0; i < missing->count; i++) {
        for (int rank = missing->ranges[i].first; rank <= missing->ranges[i].last; rank++) {
            if (!join_has(c, rank))
                rank_set_add(&named, rank_name(&c->config, rank), rank_name(&c->config, rank));
        }
    }
    return named;
}

static int64_t waited_for(const struct entry *entry, int64_t now)
{
    int64_t waited = now - entry->round->since;
    for (const struct stall_note *note = entry->round->notes; note; note = note->next)
        waited = note->waited > waited ? note->waited : waited;
    return waited;
}

/* ---- telling --------------------------------------------------------------------------------------- */

static void give_up(struct coordinator *c, const struct entry *entry, int64_t waited,
                    const struct rank_set *missing)
{
    char ranks[256];
    hvd_status cause;
    status_set(&cause, HVD_TIMED_OUT,
               "%.200s has waited %lld s for %s, which did not submit it; the job ends now, as "
               "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS says",
               entry->name, (long long)(waited / 1000000000), rank_set_text(missing, ranks, sizeof ranks));
    fail(c, -1, &cause);
}

static hvd_code tell(struct coordinator *c, struct entry *entry, int64_t now, hvd_status *status)
{
    struct rank_set missing = missing_ranks(c, entry);
    int64_t waited = waited_for(entry, now);
    entry->round->warned = now;
    if (!is_root(c)) {
        c->out.length = 0;
        wire_put_u8(&c->out, MESSAGE_STALLED);
        stall_put(&c->out, entry, waited, &missing);
        return send_out(c, c->config.tree.parent, status);
    }
    const struct coordinator_output *output = &c->config.output;
    struct rank_set named = name_missing(c, &missing);
    if (c->config.stall_shutdown_time && waited >= c->config.stall_shutdown_time)
        give_up(c, entry, waited, &named);
    else
        output->stalled(output->owner, entry->name, waited, &named);
    return HVD_OK;
}

static bool is_due(const struct coordinator *c, const struct entry *entry, int64_t now)
{
    const struct round *round = entry->round;
    int64_t waited = waited_for(entry, now), end = c->config.stall_shutdown_time;
    if (is_root(c) && end && waited >= end)
        return true;
    return waited >= patience(c) && (!round->warned || now - round->warned >= patience(c));
}

static hvd_code look_at(struct coordinator *c, struct entry *entry, int64_t now, hvd_status *status)
{
    /* Noted: the whole subtree has asked, so who is missing sits above or beside it. */
    if (!entry->round || entry->round->noted)
        return HVD_OK;
    if (!entry->round->since)
        entry->round->since = now;
    return is_due(c, entry, now) ? tell(c, entry, now, status) : HVD_OK;
}

hvd_code stall_check(struct coordinator *c, int64_t now, hvd_status *status)
{
    if ((now < stall_next(c) && !c->stall_news) || c->state != STATE_OPEN)
        return HVD_OK;
    c->stall_news = false;
    size_t cursor = 0;
    struct entry *entry;
    hvd_code code = HVD_OK;
    c->stall_looked = now;
    while (!code && c->state == STATE_OPEN && (entry = map_next(&c->table.names, &cursor)))
        code = look_at(c, entry, now, status);
    return code;
}
