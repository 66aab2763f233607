/* stall.c - the root looks now and then for what some ranks have asked for long ago and others have not; it
 * says who is missing, and may end the job. While nothing is half asked for, it looks no more. Driver only.
 */
#include "coordinate/join.h"

#include "base/status.h"

/* How often it looks in the shortest time that it watches for. */
#define LOOKS 4

static int64_t shortest_time(const struct coordinator_config *config)
{
    int64_t warning = config->stall_time, shutdown = config->stall_shutdown_time;
    if (!warning || !shutdown)
        return warning + shutdown;
    return warning < shutdown ? warning : shutdown;
}

static bool is_half_asked(const struct coordinator *c, const struct entry *entry)
{
    return entry->round.missing < c->table.reporters && !entry->round.noted;
}

static void add_missing(const struct coordinator *c, int first, int last, struct rank_set *missing)
{
    for (int rank = first; rank <= last; rank++) {
        if (!join_includes(c, rank))
            rank_set_add(missing, rank_name(&c->config, rank), rank_name(&c->config, rank));
    }
}

/* Of a child that has not reported, its whole subtree; who has joined is not waited for. Ranks of the job. */
static void find_missing(const struct coordinator *c, const struct entry *entry, struct rank_set *missing)
{
    const struct tree_node *tree = &c->config.tree;
    *missing = (struct rank_set){0};
    if (!entry->round.own)
        add_missing(c, tree->rank, tree->rank, missing);
    for (int i = 0; i < tree->child_count; i++) {
        if (!round_has_child(entry, i))
            add_missing(c, tree->children[i], tree_child_last(tree, i), missing);
    }
}

/* Tells of all that wait too long; true when any does. */
static bool report_stalls(struct coordinator *c, int64_t now)
{
    const struct coordinator_output *output = &c->config.output;
    size_t cursor = 0;
    bool any = false;
    for (const struct entry *entry; (entry = map_next(&c->table.names, &cursor));) {
        if (!is_half_asked(c, entry) || now - entry->round.since < c->config.stall_time)
            continue;
        struct rank_set missing;
        find_missing(c, entry, &missing);
        output->stalled(output->owner, entry->name, now - entry->round.since, &missing);
        any = true;
    }
    return any;
}

static hvd_code end_job(struct coordinator *c, const struct entry *entry, int64_t waited, hvd_status *status)
{
    struct rank_set missing;
    char ranks[128];
    find_missing(c, entry, &missing);
    return status_set(status, HVD_TIMED_OUT,
                      "%.200s has waited %lld s for %s, which did not submit it; the job ends now, as "
                      "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS says",
                      entry->name, (long long)(waited / 1000000000),
                      rank_set_text(&missing, ranks, sizeof ranks));
}

/* Notes since when each waits; the one that has waited longest, or NULL when none does. */
static const struct entry *find_oldest(struct coordinator *c, int64_t now)
{
    const struct entry *oldest = NULL;
    size_t cursor = 0;
    for (struct entry *entry; (entry = map_next(&c->table.names, &cursor));) {
        if (!is_half_asked(c, entry))
            continue;
        if (!entry->round.since)
            entry->round.since = now;
        if (!oldest || entry->round.since < oldest->round.since)
            oldest = entry;
    }
    return oldest;
}

hvd_code stall_check(struct coordinator *c, int64_t now, hvd_status *status)
{
    const struct coordinator_config *config = &c->config;
    struct root *root = &c->root;
    int64_t shortest = shortest_time(config);
    if (!shortest || (root->next_look && now < root->next_look))
        return HVD_OK;
    bool due = root->next_look;
    root->next_look = now + shortest / LOOKS;
    if (!due)
        return HVD_OK;
    const struct entry *oldest = find_oldest(c, now);
    if (!oldest) {
        root->next_look = 0;
        return HVD_OK;
    }
    int64_t waited = now - oldest->round.since;
    if (config->stall_shutdown_time && waited >= config->stall_shutdown_time)
        return end_job(c, oldest, waited, status);
    if (config->stall_time && now >= root->next_report && report_stalls(c, now))
        root->next_report = now + config->stall_time;
    return HVD_OK;
}

int64_t stall_next_look(const struct coordinator *c)
{
    return c->root.next_look ? c->root.next_look : INT64_MAX;
}
