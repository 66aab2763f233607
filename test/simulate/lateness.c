/* lateness.c - for how long each node has waited for each of its reporters alone, counted plainly: after
 * every call of its coordinator it looks which reporters all open rounds lack. */
#include "coordinate/state.h"
#include "world.h"

#include <stdlib.h>

/* Returns the reporter that this round lacks, if it is only one; -1: none, or several, or nobody waits. */
static int lone_reporter(const struct coordinator *c, const struct entry *entry)
{
    const struct tree_node *tree = &c->config.tree;
    int lacks = -1, missing = 0, reports = 0;
    for (int reporter = 0; reporter <= tree->child_count; reporter++) {
        int child = reporter - 1;
        bool reported = reporter ? round_has_child(entry, child) : entry->round->own;
        bool joined =
            reporter ? c->children[child].joined == tree_child_last(tree, child) - tree->children[child] + 1
                     : c->join != NULL;
        reports += reported;
        if (reported || joined)
            continue;
        missing++;
        lacks = reporter;
    }
    return reports && missing == 1 ? lacks : -1;
}

void lateness_look(struct virtual_rank *member)
{
    const struct coordinator *c = member->coordinator;
    struct world *world = member->set->world;
    const struct entry *entry;
    size_t cursor = 0;
    int reporters = member->tree.child_count + 1;
    for (int reporter = 0; reporter < reporters; reporter++)
        member->awaited[reporter].rounds = 0;
    while (c->state == STATE_OPEN && (entry = map_next(&c->table.names, &cursor))) {
        int lacks = entry->round ? lone_reporter(c, entry) : -1;
        if (lacks >= 0)
            member->awaited[lacks].rounds++;
    }
    for (int reporter = 0; reporter < reporters; reporter++) {
        struct awaited *awaited = &member->awaited[reporter];
        int64_t shown = awaited->shown.total + (awaited->shown.total < 0 ? world->now : 0);
        int64_t lasts = awaited->since ? world->now - awaited->since : 0;
        awaited->longest = lasts > awaited->longest ? lasts : awaited->longest;
        world->tally->lone_waits += awaited->rounds && !awaited->since;
        world->tally->shared_waits += awaited->rounds > 1;
        world->tally->cut_waits += awaited->since && c->state != STATE_OPEN;
        if (awaited->since && !awaited->rounds) {
            awaited->total += lasts;
            awaited->since = lasts = 0;
        } else if (awaited->rounds && !awaited->since) {
            awaited->since = world->now;
        }
        if (shown != awaited->total + lasts || (awaited->shown.total < 0) != (awaited->since != 0) ||
            awaited->shown.longest > awaited->longest)
            violation(world,
                      "rank %d has waited for its reporter %d alone for %lld, and says %lld (longest %lld of "
                      "%lld)",
                      member->rank, reporter, (long long)(awaited->total + lasts), (long long)shown,
                      (long long)awaited->shown.longest, (long long)awaited->longest);
    }
}

void lateness_shown(void *owner, int reporter, int rank, const struct lateness *lateness)
{
    struct virtual_rank *member = owner;
    const struct tree_node *tree = &member->tree;
    int place = reporter ? tree->children[reporter - 1] : tree->place;
    if (rank != member->set->topology.rank_at[place])
        violation(member->set->world, "rank %d waits for rank %d, which is not its reporter %d", member->rank,
                  rank, reporter);
    member->awaited[reporter].shown = *lateness;
}
