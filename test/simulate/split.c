/* split.c - hosts that are lost, and networks that are cut, from a time on: nothing arrives any more from
 * some hosts at others, and no connection ends. Every rank counts its looks at silent peers as the engine
 * does (src/engine/heartbeat.c), which ends the job of all that still reach each other with one cause. */
#include "random.h"
#include "world.h"

#include <stdlib.h>
#include <string.h>

/* In looks; see heartbeat.c. */
enum { LOOKS_UNTIL_REPORT = 36, LOOKS_AFTER_OTHERS = 16, LOOKS_FOR_SETTLING = 3, LOOKS_FOR_SHUTDOWN = 64 };
#define LOOKS_LIMIT (LOOKS_UNTIL_REPORT + 4 * LOOKS_FOR_SETTLING + 2)

#define CUTS_LIMIT    3 /* single pairs and directions of one run */
#define LOOKS_OF_BACK 4 /* until nothing passes in the other direction of a cut one */

int64_t split_settling(const struct scenario *scenario)
{
    return LOOKS_FOR_SETTLING * scenario->look;
}

/* ---- cuts ---------------------------------------------------------------------------------------------- */

static int64_t *cut_time(const struct world *world, int from, int to)
{
    return &world->cut_times[from * world->scenario.topology.hosts + to];
}

static void cut(struct world *world, int from, int to, int64_t time)
{
    int64_t *before = cut_time(world, from, to);
    *before = time < *before ? time : *before;
}

/* Of hosts at random at least one is in the first part, and one is not; in a lost one nothing runs. */
static void plan_parts(struct world *world, uint64_t *random, bool lost)
{
    int hosts = world->scenario.topology.hosts, percent = 0;
    if (random_chance(random, 50))
        percent = random_chance(random, 30) ? 50 : (int)random_below(random, 100);
    int odd = (int)random_below(random, hosts);
    int even = (odd + 1 + (int)random_below(random, hosts - 1)) % hosts;
    bool *apart = calloc((size_t)hosts, sizeof *apart);
    for (int host = 0; host < hosts; host++)
        apart[host] = host != even && (host == odd || random_chance(random, percent));
    for (int from = 0; from < hosts; from++)
        for (int to = 0; to < hosts; to++)
            if (apart[from] != apart[to] || (apart[from] && lost))
                cut(world, from, to, world->split_at);
    for (int rank = 0; lost && rank < world->scenario.size; rank++)
        world->lost[rank] = apart[world->scenario.topology.host_of[rank]];
    free(apart);
    world->tally->lost_hosts += lost;
    world->tally->splits += !lost;
}

/* Between single hosts. What passes in the other direction is not acknowledged, so TCP sends no more of it.
 */
static void plan_cuts(struct world *world, uint64_t *random, bool one_way)
{
    int hosts = world->scenario.topology.hosts;
    for (int i = 1 + (int)random_below(random, CUTS_LIMIT); i > 0; i--) {
        int from = (int)random_below(random, hosts);
        int to = (from + 1 + (int)random_below(random, hosts - 1)) % hosts;
        int64_t back = one_way ? random_below(random, LOOKS_OF_BACK * world->scenario.look) : 0;
        cut(world, from, to, world->split_at);
        cut(world, to, from, world->split_at + back);
    }
    world->tally->one_way_cuts += one_way;
    world->tally->pair_cuts += !one_way;
}

void split_plan(struct world *world)
{
    const struct scenario *scenario = &world->scenario;
    size_t hosts = (size_t)scenario->topology.hosts;
    uint64_t random = random_mix(scenario->seed + 2);
    world->split_at = 1 + random_below(&random, 2 * scenario->trouble);
    world->lost = calloc((size_t)scenario->size, sizeof *world->lost);
    world->cut_times = malloc(hosts * hosts * sizeof *world->cut_times);
    for (size_t i = 0; i < hosts * hosts; i++)
        world->cut_times[i] = INT64_MAX;
    int kind = (int)random_below(&random, 4);
    if (kind < 2)
        plan_parts(world, &random, kind == 0);
    else
        plan_cuts(world, &random, kind == 3);
    for (int rank = 0; rank < scenario->size; rank++)
        queue_push(&world->queue,
                   (struct event){.time = world->split_at + random_below(&random, scenario->look),
                                  .kind = EVENT_LOOK,
                                  .rank = rank});
}

bool split_has_lost(const struct world *world, int rank)
{
    return world->lost && world->now >= world->split_at && world->lost[rank];
}

/* When what one rank sends no longer arrives at another one. */
static int64_t time_between(const struct world *world, int from, int to)
{
    const int *host_of = world->scenario.topology.host_of;
    return world->cut_times ? *cut_time(world, host_of[from], host_of[to]) : INT64_MAX;
}

bool split_stops(const struct world *world, int from, int to)
{
    return world->now >= time_between(world, from, to) || split_has_lost(world, from) ||
           split_has_lost(world, to);
}

/* Whether messages pass in both directions. */
static bool is_whole(const struct world *world, int a, int b)
{
    return !network_is_cut(world, a, b) && !network_is_cut(world, b, a);
}

/* The ends of a cut connection do not get the data of a batch, nor do those that finish later. */
bool split_blocks(const struct virtual_rank *member, int batch)
{
    struct set *set = member->set;
    struct decided *decided = &set->decided[batch];
    for (int i = 0; set->world->cut_times && i < network_peers(member); i++) {
        int peer = network_peer(member, i);
        decided->blocked |= peer >= 0 && !is_whole(set->world, member->rank, set->ranks[peer]);
    }
    return decided->blocked;
}

/* ---- looks --------------------------------------------------------------------------------------------- */

static struct virtual_rank *member_of(const struct world *world, int set, int rank)
{
    struct virtual_rank *member = world->sets[set] ? find_member(world->sets[set], rank) : NULL;
    return member && member->coordinator ? member : NULL;
}

/* Returns true if a connection of the set is cut, or a process of it has ended. */
static bool is_disturbed(const struct world *world, const struct set *set)
{
    for (int m = 0; m < set->size; m++) {
        const struct virtual_rank *member = &set->members[m];
        if (split_has_lost(world, member->rank))
            return true;
        for (int i = 0; member->coordinator && i < network_peers(member); i++) {
            int peer = network_peer(member, i);
            if (peer >= 0 && !is_whole(world, member->rank, set->ranks[peer]))
                return true;
        }
    }
    return false;
}

/* A shutdown that nothing disturbs ends by itself. In one order over all sets a set may wait for any other.
 */
static void check_patience(struct world *world, int rank)
{
    bool disturbed = false;
    for (int s = 0; s <= SETS_LIMIT; s++) {
        const struct virtual_rank *member = member_of(world, s, rank);
        bool waits = world->scenario.one_order ? world->sets[s] != NULL : member && !member->closed;
        disturbed = disturbed || (waits && is_disturbed(world, world->sets[s]));
    }
    if (!disturbed)
        violation(world, "rank %d waits in vain for the end of sets that nothing disturbs", rank);
}

/* Shutdown has waited long enough for the other ranks: the process ends, and so do its connections. */
static void end_process(struct world *world, int rank)
{
    check_patience(world, rank);
    for (int s = 0; s <= SETS_LIMIT; s++) {
        const struct virtual_rank *member = member_of(world, s, rank);
        for (int i = 0; member && i < network_peers(member); i++) {
            int peer = network_peer(member, i);
            if (peer >= 0 && !network_is_cut(world, rank, member->set->ranks[peer]))
                queue_push(&world->queue, (struct event){.time = later(world, 2000),
                                                         .kind = EVENT_LOST,
                                                         .rank = member->set->ranks[peer],
                                                         .argument = rank});
        }
    }
    world->lost[rank] = true;
}

/* Looks since anything arrived from the peer or the member began to wait, whichever is later. */
static int silent_looks(const struct virtual_rank *member, int peer)
{
    const struct world *world = member->set->world;
    int64_t since = time_between(world, peer, member->rank);
    if (!network_is_cut(world, peer, member->rank))
        return 0;
    int64_t looks = since > world->now ? member->looks : (world->now - since) / world->scenario.look;
    return looks < member->looks ? (int)looks : member->looks;
}

static bool waits(const struct virtual_rank *member)
{
    return coordinator_pending_count(member->coordinator) || member->running;
}

/* In any of its sets. */
static bool rank_waits(const struct world *world, int rank)
{
    bool found = false;
    for (int s = 0; s <= SETS_LIMIT; s++) {
        const struct virtual_rank *member = member_of(world, s, rank);
        found = found || (member && waits(member));
    }
    return found;
}

/* Any wait looks at all peers of set 0, which are reported once a silent rank was. */
static bool look_at_peers(struct virtual_rank *member, struct coordinator *first)
{
    struct world *world = member->set->world;
    bool others = coordinator_has_silent(first), found = false;
    int limit = others ? LOOKS_AFTER_OTHERS : LOOKS_UNTIL_REPORT;
    bool looked_at = member->set->id == 0 && !member->closed && rank_waits(world, member->rank);
    member->looks = looked_at || waits(member) ? member->looks + 1 : 0;
    if (!others && !waits(member))
        return false;
    for (int i = 0; i < network_peers(member); i++) {
        int peer = network_peer(member, i);
        int looks = peer < 0 ? 0 : silent_looks(member, member->set->ranks[peer]);
        /* After the end of set 0 the rest of the shutdown has a limit of its own. */
        if (looks > LOOKS_LIMIT && !world->sets[0]->members[member->rank].closed)
            violation(world, "rank %d waits in set %d, and its peer %d is silent for %d looks", member->rank,
                      member->set->id, peer, looks);
        if (looks >= limit)
            coordinator_silent(first, member->set->ranks[peer]);
        found |= looks >= limit;
    }
    return found;
}

/* All sets of the rank. */
static bool has_closed(const struct world *world, int rank)
{
    bool closed = true;
    for (int s = 0; s <= SETS_LIMIT; s++) {
        const struct virtual_rank *member = member_of(world, s, rank);
        closed = closed && (!member || member->closed);
    }
    return closed;
}

void split_look(struct world *world, int rank)
{
    const struct scenario *scenario = &world->scenario;
    struct virtual_rank *first = &world->sets[0]->members[rank];
    hvd_code health = coordinator_health(first->coordinator, NULL);
    if (has_closed(world, rank) || (health && health != HVD_SHUT_DOWN))
        return;
    if ((first->left || first->closed) && world->now > first->left_at + LOOKS_FOR_SHUTDOWN * scenario->look) {
        end_process(world, rank);
        return;
    }
    for (int s = 0; s <= SETS_LIMIT; s++) {
        struct virtual_rank *member = member_of(world, s, rank);
        if (member && look_at_peers(member, first->coordinator))
            plan_turn(first);
    }
    /* Longer than any program does nothing: see plan_submission. */
    if (world->now <= world->active + 3 * LOOKS_UNTIL_REPORT * scenario->look + 6 * scenario->stall_time +
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
            if (peer >= 0 && is_whole(world, rank, peer))
                roots[find_root(roots, peer)] = find_root(roots, rank);
        }
    }
    for (int rank = 0; rank < world->scenario.size; rank++)
        roots[rank] = find_root(roots, rank);
    return roots;
}

/* A host that no longer answers is named as a whole, and only one that this rank does not reach at all. */
static void check_lost(const struct virtual_rank *member, const int *component, const struct rank_set *lost)
{
    struct world *world = member->set->world;
    const struct topology *topology = &member->set->topology;
    for (int place = 0; place < topology->size; place++) {
        int rank = topology->rank_at[place], leader = topology_leader(topology, topology->host_of[rank]);
        bool named = rank_set_has(lost, place);
        if (named && component[rank] == component[member->rank])
            violation(world, "rank %d says that rank %d is silent, which it can reach", member->rank, rank);
        if (named != rank_set_has(lost, topology->place_of[leader]) && !world->lost[rank] &&
            !world->lost[leader] && !lost->others)
            violation(world, "rank %d names one of the ranks %d and %d, which are on one host", member->rank,
                      rank, leader);
    }
}

/* What a rank has found silent before the others had time to settle that is known to all that it reaches, if
 * that rank doesn't reach it on another way. */
static void check_complete(const struct virtual_rank *member, const int *component,
                           const struct rank_set *lost)
{
    const struct set *set = member->set;
    for (int rank = 0; rank < set->size; rank++) {
        const struct virtual_rank *each = &set->members[rank];
        for (int i = 0; component[rank] == component[member->rank] && i < network_peers(each); i++) {
            int peer = network_peer(each, i);
            bool found = peer >= 0 && silent_looks(each, peer) > LOOKS_UNTIL_REPORT + LOOKS_FOR_SETTLING;
            if (found && component[peer] != component[rank] && !lost->others &&
                !rank_set_has(lost, set->topology.place_of[peer]))
                violation(set->world, "rank %d does not know that rank %d is silent, as rank %d has found",
                          member->rank, peer, rank);
        }
    }
}

static void check_cut_off(const struct virtual_rank *member)
{
    struct world *world = member->set->world;
    const struct topology *topology = &member->set->topology;
    int host = topology->host_of[member->number];
    for (int place = topology->first[host]; place < topology->first[host + 1]; place++) {
        const struct virtual_rank *each = &member->set->members[topology->rank_at[place]];
        for (int i = 0; i < network_peers(each); i++) {
            int peer = network_peer(each, i);
            if (peer >= 0 && topology->host_of[peer] != host && is_whole(world, each->rank, peer))
                violation(world, "rank %d says that its host is cut off, but rank %d reaches rank %d",
                          member->rank, each->rank, peer);
        }
    }
}

/* Only hosts between which nothing passes, and which this rank reaches both. */
static void check_pair(const struct virtual_rank *member, const int *component, const int pair[2])
{
    const struct topology *topology = &member->set->topology;
    int one = topology_leader(topology, pair[0]), other = topology_leader(topology, pair[1]);
    if (is_whole(member->set->world, one, other))
        violation(member->set->world,
                  "rank %d says that hosts %d and %d get nothing from each other, which do", member->rank,
                  pair[0], pair[1]);
    if (component[one] != component[member->rank] || component[other] != component[member->rank])
        violation(member->set->world,
                  "rank %d says that hosts %d and %d get nothing from each other; one is lost", member->rank,
                  pair[0], pair[1]);
}

void split_check_cause(const struct virtual_rank *member, const struct silence *silence)
{
    struct world *world = member->set->world;
    int *component = split_components(world);
    world->tally->silences += silence->lost.count > 0;
    world->tally->cut_off += silence->cut_off;
    world->tally->pairs += silence->pair_count > 0;
    check_lost(member, component, &silence->lost);
    check_complete(member, component, &silence->lost);
    if (silence->cut_off)
        check_cut_off(member);
    for (int i = 0; i < silence->pair_count; i++)
        check_pair(member, component, silence->pairs[i]);
    if (!silence->lost.count && !silence->pair_count)
        violation(world, "rank %d names nothing", member->rank);
    free(component);
}
