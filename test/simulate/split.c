/* split.c - hosts that are lost, and networks that fall into parts, from a time on: nothing arrives any more
 * between ranks of different parts, and no connection ends. Every rank counts its looks at silent peers as
 * the engine does (src/engine/heartbeat.c), which ends each part's job with one cause. */
#include "random.h"
#include "world.h"

#include <stdlib.h>

/* In looks; see heartbeat.c. */
enum { LOOKS_PER_PERIOD = 32, LOOKS_UNTIL_REPORT = 28, LOOKS_FOR_SETTLING = 2, LOOKS_FOR_SHUTDOWN = 32 };
#define LOOKS_LIMIT (LOOKS_UNTIL_REPORT + 3 * LOOKS_FOR_SETTLING + 2)

#define PART_GONE 255 /* of ranks that do nothing any more; the others are in parts 0 and 1 */

int64_t split_settling(const struct scenario *scenario)
{
    return LOOKS_FOR_SETTLING * scenario->look;
}

/* Of hosts at random at least one is in part 0, and one is not. */
void split_plan(struct world *world)
{
    const struct topology *topology = &world->scenario.topology;
    uint64_t random = random_mix(world->scenario.seed + 2);
    uint8_t other = random_chance(&random, 50) ? PART_GONE : 1;
    int percent = random_chance(&random, 50) ? 0 : (int)random_below(&random, 100);
    int odd = (int)random_below(&random, topology->hosts);
    int even = (odd + 1 + (int)random_below(&random, topology->hosts - 1)) % topology->hosts;
    world->parts = calloc((size_t)world->scenario.size, sizeof *world->parts);
    for (int host = 0; host < topology->hosts; host++) {
        bool apart = host != even && (host == odd || random_chance(&random, percent));
        for (int place = topology->first[host]; apart && place < topology->first[host + 1]; place++)
            world->parts[topology->rank_at[place]] = other;
    }
    world->split_at = 1 + random_below(&random, 2 * world->scenario.trouble);
    world->tally->lost_hosts += other == PART_GONE;
    world->tally->splits += other != PART_GONE;
    for (int rank = 0; rank < world->scenario.size; rank++)
        queue_push(&world->queue,
                   (struct event){.time = world->split_at + random_below(&random, world->scenario.look),
                                  .kind = EVENT_LOOK,
                                  .rank = rank});
}

bool split_has_lost(const struct world *world, int rank)
{
    return world->parts && world->now >= world->split_at && world->parts[rank] == PART_GONE;
}

bool split_between(const struct world *world, int a, int b)
{
    return world->parts && world->now >= world->split_at &&
           (world->parts[a] != world->parts[b] || world->parts[a] == PART_GONE);
}

bool split_has_cut(const struct virtual_rank *member)
{
    const struct set *set = member->set;
    bool cut = false;
    for (int m = 0; m < set->size && !cut; m++)
        cut = set->world->parts && split_between(set->world, member->rank, set->ranks[m]);
    return cut;
}

/* ---- looks --------------------------------------------------------------------------------------------- */

static struct virtual_rank *member_of(const struct world *world, int set, int rank)
{
    struct virtual_rank *member = world->sets[set] ? find_member(world->sets[set], rank) : NULL;
    return member && member->coordinator ? member : NULL;
}

/* Shutdown has waited long enough for the other ranks: the process ends, and so do its connections. */
static void end_process(struct world *world, int rank)
{
    for (int s = 0; s <= SETS_LIMIT; s++) {
        const struct virtual_rank *member = member_of(world, s, rank);
        for (int i = 0; member && i < network_peers(member); i++) {
            int peer = network_peer(member, i);
            if (peer >= 0 && !network_is_cut(world, member, member->set->ranks[peer]))
                queue_push(&world->queue, (struct event){.time = later(world, 2000),
                                                         .kind = EVENT_LOST,
                                                         .rank = member->set->ranks[peer],
                                                         .argument = rank});
        }
    }
    world->parts[rank] = PART_GONE;
}

static bool look_at_peers(struct virtual_rank *member, struct coordinator *first)
{
    struct world *world = member->set->world;
    bool waits = coordinator_pending_count(member->coordinator) || member->running, cut = false;
    member->looks = waits ? member->looks + 1 : 0;
    if (member->looks < (coordinator_has_silent(first) ? LOOKS_PER_PERIOD / 2 : LOOKS_UNTIL_REPORT))
        return false;
    for (int i = 0; i < network_peers(member); i++) {
        int peer = network_peer(member, i);
        if (peer < 0 || !network_is_cut(world, member, member->set->ranks[peer]))
            continue;
        coordinator_silent(first, member->set->ranks[peer]);
        cut = true;
    }
    if (cut && member->looks > LOOKS_LIMIT)
        violation(world, "rank %d waits in set %d, and its peers are silent for %d looks", member->rank,
                  member->set->id, member->looks);
    return cut;
}

void split_look(struct world *world, int rank)
{
    const struct scenario *scenario = &world->scenario;
    struct virtual_rank *first = &world->sets[0]->members[rank];
    hvd_code health = coordinator_health(first->coordinator, NULL);
    if (first->closed || (health && health != HVD_SHUT_DOWN))
        return;
    if (first->left && world->now > first->left_at + LOOKS_FOR_SHUTDOWN * scenario->look) {
        end_process(world, rank);
        return;
    }
    for (int s = 0; s <= SETS_LIMIT; s++) {
        struct virtual_rank *member = member_of(world, s, rank);
        if (member && look_at_peers(member, first->coordinator))
            plan_turn(first);
    }
    /* Longer than any program does nothing: see plan_submission. */
    if (world->now <= world->active + 3 * LOOKS_PER_PERIOD * scenario->look + 6 * scenario->stall_time +
                          scenario->spread + scenario->opening + scenario->execution)
        queue_push(&world->queue,
                   (struct event){.time = world->now + scenario->look, .kind = EVENT_LOOK, .rank = rank});
}

/* ---- what must hold ------------------------------------------------------------------------------------ */

static int find_root(int *roots, int rank)
{
    while (roots[rank] != rank)
        rank = roots[rank] = roots[roots[rank]];
    return rank;
}

/* Ranks between which there is a way over connections that are whole have one number. */
int *split_components(const struct world *world)
{
    int *roots = malloc((size_t)world->scenario.size * sizeof *roots);
    for (int rank = 0; rank < world->scenario.size; rank++)
        roots[rank] = rank;
    for (int rank = 0; rank < world->scenario.size; rank++) {
        const struct virtual_rank *member = &world->sets[0]->members[rank];
        for (int i = 0; i < network_peers(member); i++) {
            int peer = network_peer(member, i);
            if (peer >= 0 && !network_is_cut(world, member, peer))
                roots[find_root(roots, peer)] = find_root(roots, rank);
        }
    }
    for (int rank = 0; rank < world->scenario.size; rank++)
        roots[rank] = find_root(roots, rank);
    return roots;
}

/* What a rank has found silent before the others had time to settle that is known to all that it reaches. */
static void check_complete(const struct virtual_rank *member, const struct rank_set *places)
{
    const struct set *set = member->set;
    int *component = split_components(set->world);
    for (int rank = 0; rank < set->size; rank++) {
        const struct virtual_rank *each = &set->members[rank];
        bool found = each->looks > LOOKS_UNTIL_REPORT + LOOKS_FOR_SETTLING;
        for (int i = 0; found && component[rank] == component[member->rank] && i < network_peers(each); i++) {
            int peer = network_peer(each, i);
            if (peer >= 0 && network_is_cut(set->world, each, peer) && !places->others &&
                !rank_set_has(places, set->topology.place_of[peer]))
                violation(set->world, "rank %d does not know that rank %d is silent, as rank %d has found",
                          member->rank, peer, rank);
        }
    }
    free(component);
}

void split_check_cause(const struct virtual_rank *member, const struct rank_set *places, bool cut_off)
{
    struct world *world = member->set->world;
    const struct topology *topology = &member->set->topology;
    int host = topology->host_of[member->number];
    world->tally->silences++;
    world->tally->cut_off += cut_off;
    check_complete(member, places);
    for (int place = 0; place < topology->size; place++)
        if (rank_set_has(places, place) && !split_between(world, member->rank, topology->rank_at[place]))
            violation(world, "rank %d says that rank %d is silent, which it can reach", member->rank,
                      topology->rank_at[place]);
    for (int place = topology->first[host]; cut_off && place < topology->first[host + 1]; place++) {
        const struct virtual_rank *each = &member->set->members[topology->rank_at[place]];
        for (int i = 0; i < network_peers(each); i++) {
            int peer = network_peer(each, i);
            if (peer >= 0 && topology->host_of[peer] != host && !network_is_cut(world, each, peer))
                violation(world, "rank %d says that its host is cut off, but rank %d reaches rank %d",
                          member->rank, each->rank, peer);
        }
    }
}
