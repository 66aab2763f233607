/* set.c - process sets: adding and removing them, and what reaches all sets of a rank. */
#include "base/status.h"
#include "random.h"
#include "world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---------------------------------------------------------------------------------------------- */

int member_parent(const struct virtual_rank *member)
{
    int place = member->tree.parent;
    return place < 0 ? -1 : member->set->topology.rank_at[place];
}

static void open_member_tree(struct set *set, int number)
{
    struct virtual_rank *member = &set->members[number];
    hvd_status status;
    *member = (struct virtual_rank){.set = set, .number = number, .rank = set->ranks[number]};
    member->slots = calloc((size_t)set->program.names, sizeof *member->slots);
    if (tree_node_init(&member->tree, &set->topology, number, set->world->scenario.fanout, &status)) {
        fprintf(stderr, "%s\n", status.text);
        abort();
    }
    member->awaited = calloc((size_t)member->tree.child_count + 1, sizeof *member->awaited);
}

struct set *set_create(struct world *world, int id, const int *ranks, int size)
{
    struct set *set = calloc(1, sizeof *set);
    *set = (struct set){
        .world = world, .id = id, .size = size, .fusion_threshold = world->scenario.fusion_threshold};
    set->ranks = malloc((size_t)size * sizeof *set->ranks);
    for (int m = 0; m < size; m++)
        set->ranks[m] = ranks ? ranks[m] : m;
    if (id)
        program_init_small(&set->program, &world->scenario, id);
    else
        set->program = world->scenario.program;
    size_t names = (size_t)set->program.names, rounds = (size_t)set->program.rounds;
    size_t epochs = (size_t)set->program.epochs;
    if (topology_subset(&set->topology, &world->scenario.topology, set->ranks, size, NULL))
        abort();
    set->members = calloc((size_t)size, sizeof *set->members);
    set->links = calloc(2 * (size_t)size, sizeof *set->links);
    set->requested = calloc(names * rounds, sizeof *set->requested);
    set->join_times = calloc(epochs * (size_t)size, sizeof *set->join_times);
    set->joined = calloc(epochs, sizeof *set->joined);
    set->last_joined = calloc(epochs, sizeof *set->last_joined);
    set->latest = calloc(names, sizeof *set->latest);
    set->numbers = calloc(rounds, sizeof *set->numbers);
    set->decided = calloc(names * rounds, sizeof *set->decided);
    set->codes = calloc(names * rounds, sizeof *set->codes);
    set->hashes = calloc(names * rounds, sizeof *set->hashes);
    for (int m = 0; m < size; m++)
        open_member_tree(set, m);
    return set;
}

static void member_close(struct virtual_rank *member)
{
    while (member->early) {
        struct early *early = member->early;
        member->early = early->previous;
        free(early->message);
        free(early);
    }
    for (int n = 0; n < member->set->program.names; n++) {
        if (member->slots[n].state == SLOT_ASKED)
            free(member->slots[n].pending.signature.bytes);
    }
    if (member->joined)
        free(member->join.signature.bytes);
    if (member->coordinator)
        coordinator_destroy(member->coordinator);
    else
        tree_node_free(&member->tree);
    free(member->slots);
    free(member->awaited);
}

void set_free(struct set *set)
{
    if (!set)
        return;
    for (int m = 0; m < set->size; m++)
        member_close(&set->members[m]);
    if (set->id)
        program_free(&set->program);
    topology_free(&set->topology);
    void *const parts[] = {set->ranks,      set->members,     set->links,   set->requested,
                           set->join_times, set->joined,      set->latest,  set->codes,
                           set->decided,    set->last_joined, set->numbers, set->hashes};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        free(parts[i]);
    free(set);
}

void member_open(struct virtual_rank *member)
{
    struct set *set = member->set;
    const struct scenario *scenario = &set->world->scenario;
    struct coordinator_config config = {.process_set = set->id,
                                        .names = set->id ? set->ranks : NULL,
                                        .tree = member->tree,
                                        .fusion_threshold = scenario->fusion_threshold,
                                        .cycle_time = scenario->cycle_time,
                                        .cache_capacity = scenario->cache_capacity,
                                        .settling_time = split_settling(scenario),
                                        .eager_threshold = scenario->eager_threshold,
                                        .join_all = set->program.join_all,
                                        .stall_time = scenario->stall_time,
                                        .stall_shutdown_time = scenario->stall_shutdown_time,
                                        .output = member_output(member)};
    hvd_status status;
    if (scenario->eager_differs && member->rank % 4 == 3)
        config.eager_threshold /= 4;
    if (coordinator_create(&config, &member->coordinator, &status)) {
        fprintf(stderr, "%s\n", status.text);
        abort();
    }
}

struct virtual_rank *find_member(struct set *set, int rank)
{
    int low = 0, high = set->size;
    while (low < high) {
        int middle = (low + high) / 2;
        if (set->ranks[middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < set->size && set->ranks[low] == rank ? &set->members[low] : NULL;
}

/* ---- changes ------------------------------------------------------------------------------------------- */

static void leave_set(struct virtual_rank *member)
{
    if (member->left)
        return;
    member_adopt(member);
    member->left = true;
    member->left_at = member->set->world->now;
    coordinator_leave(member->coordinator);
    plan_turn(member);
}

static void add_set(struct virtual_rank *member, int id)
{
    struct world *world = member->set->world;
    const struct set_plan *plan = &world->scenario.sets[id];
    if (!world->sets[id]) {
        world->sets[id] = set_create(world, id, plan->ranks, plan->size);
        world->tally->added++;
    }
    struct virtual_rank *new = find_member(world->sets[id], member->rank);
    if (++member->sets_added != id)
        violation(world, "rank %d gives the id %d to set %d", member->rank, member->sets_added, id);
    if (!new)
        return;
    new->opening = true;
    plan_event(new, EVENT_OPEN, world->scenario.opening, 0);
}

void member_adopt(struct virtual_rank *member)
{
    struct virtual_rank *first = &member->set->world->sets[0]->members[member->rank];
    if (member->coordinator)
        return;
    member_open(member);
    network_deliver_early(member);
    if (first->left)
        leave_set(member);
    spread(first); /* what has happened to the rank meanwhile */
    member_start(member);
}

/* The batch of a change starts on a rank of the job. */
void change_sets(struct virtual_rank *member, const struct plan *plan)
{
    struct world *world = member->set->world;
    if (plan->change == CHANGE_ADD)
        add_set(member, plan->set);
    if (plan->change != CHANGE_REMOVE)
        return;
    struct virtual_rank *old =
        world->sets[plan->set] ? find_member(world->sets[plan->set], member->rank) : NULL;
    world->tally->removed += member->number == 0;
    if (old)
        leave_set(old);
}

/* ---- a rank's sets together ---------------------------------------------------------------------------- */

static bool is_fault(hvd_code code)
{
    return code != HVD_OK && code != HVD_SHUT_DOWN;
}

static void member_abort(struct virtual_rank *member, int lost, const hvd_status *cause)
{
    coordinator_abort(member->coordinator, lost, cause, member->set->world->now);
    lateness_look(member);
}

void spread(struct virtual_rank *member)
{
    struct world *world = member->set->world;
    hvd_status cause;
    hvd_code health = coordinator_health(member->coordinator, &cause);
    bool ended = health == HVD_SHUT_DOWN && member->set->id == 0;
    for (int s = 0; s <= SETS_LIMIT && (ended || is_fault(health)); s++) {
        struct virtual_rank *other = world->sets[s] ? find_member(world->sets[s], member->rank) : NULL;
        if (!other || other == member || !other->coordinator)
            continue;
        if (ended)
            leave_set(other);
        else if (!is_fault(coordinator_health(other->coordinator, NULL)))
            member_abort(other, -1, &cause);
    }
}

void rank_leave(struct world *world, int rank)
{
    struct virtual_rank *first = &world->sets[0]->members[rank];
    if (first->left)
        return;
    world->tally->leaves += !first->through;
    for (int s = 0; s <= SETS_LIMIT; s++) {
        struct virtual_rank *member = world->sets[s] ? find_member(world->sets[s], rank) : NULL;
        if (member && member->coordinator)
            leave_set(member);
    }
}

static void lose(struct virtual_rank *member, int peer)
{
    struct world *world = member->set->world;
    const struct virtual_rank *other = find_member(member->set, peer);
    hvd_status cause;
    if (!other || (!member->coordinator && !member->opening))
        return;
    member_adopt(member);
    status_set(&cause, HVD_PEER_LOST, "lost: rank %d by rank %d", peer, member->rank);
    hvd_code before = coordinator_health(member->coordinator, NULL);
    member_abort(member, other->number, &cause);
    hvd_code after = coordinator_health(member->coordinator, NULL);
    if (before == HVD_OK && after != HVD_PEER_LOST)
        violation(world, "rank %d lost rank %d and stays healthy", member->rank, peer);
    world->tally->late_losses += after == HVD_SHUT_DOWN;
    if (coordinator_pending_count(member->coordinator) && after != HVD_OK)
        violation(world, "rank %d lost rank %d and keeps requests", member->rank, peer);
    spread(member);
    plan_turn(member);
}

void rank_lost(struct world *world, int rank, int peer)
{
    for (int s = 0; s <= SETS_LIMIT; s++) {
        struct virtual_rank *member = world->sets[s] ? find_member(world->sets[s], rank) : NULL;
        if (member)
            lose(member, peer);
    }
}

/* What is on its way is gone, and both ends notice, each in its time. */
void cut_some_edge(struct world *world)
{
    struct set *set = world->sets[random_below(&world->random, SETS_LIMIT + 1)];
    if (!set || set->size < 2)
        set = world->sets[0];
    /* Not the root, which is the member 0. */
    const struct virtual_rank *child = &set->members[1 + random_below(&world->random, set->size - 1)];
    int ends[] = {child->rank, set->ranks[member_parent(child)]};
    if (network_is_cut(world, ends[0], ends[1]))
        return;
    memcpy(world->cuts[world->cut_count++], ends, sizeof ends);
    world->tally->cuts++;
    for (int i = 0; i < 2; i++)
        queue_push(&world->queue, (struct event){.time = later(world, 2000),
                                                 .kind = EVENT_LOST,
                                                 .rank = ends[i],
                                                 .argument = ends[1 - i]});
}
