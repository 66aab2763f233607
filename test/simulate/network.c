/* network.c - messages on their way: delays, cut edges, spoiled and corrupted bytes; what they were. */
#include "coordinate/message.h"
#include "coordinate/state.h"
#include "random.h"
#include "world.h"

#include <stdlib.h>
#include <string.h>

/* ---- sending ------------------------------------------------------------------------------------------- */

/* Spoils a message beyond doubt: no kind, no header, or something behind it. */
static void spoil(struct world *world, struct message *message)
{
    switch (random_below(&world->random, 3)) {
    case 0:
        message->bytes[0] = 0xee;
        break;
    case 1:
        message->length = message->length > 4 ? 4 : 0;
        break;
    default:
        message->bytes[message->length++] = 0xee;
    }
    world->tally->garbage++;
    world->garbage_left--;
}

/* A peer that sends garbage, which may be well-formed. */
static void corrupt(struct world *world, struct message *message)
{
    for (int i = 0; i < 3; i++)
        message->bytes[random_below(&world->random, (int64_t)message->length)] ^=
            (uint8_t)(1 << random_below(&world->random, 8));
}

bool network_is_cut(const struct world *world, int from, int to)
{
    if (split_stops(world, from, to))
        return true;
    for (int i = 0; i < world->cut_count; i++) {
        const int *ends = world->cuts[i];
        if ((ends[0] == from && ends[1] == to) || (ends[1] == from && ends[0] == to))
            return true;
    }
    return false;
}

int network_peers(const struct virtual_rank *member)
{
    return member->tree.child_count + 3;
}

static bool is_tree_neighbour(const struct tree_node *tree, int place)
{
    bool child = false;
    for (int i = 0; i < tree->child_count; i++)
        child |= tree->children[i] == place;
    return child || place == tree->parent;
}

/* The neighbours in the tree and on the ring of places, each once. */
int network_peer(const struct virtual_rank *member, int i)
{
    const struct topology *topology = &member->set->topology;
    const struct tree_node *tree = &member->tree;
    int size = topology->size, up = i - tree->child_count;
    int previous = (tree->place + size - 1) % size, next = (tree->place + 1) % size;
    int place = up < 0 ? tree->children[i] : up == 0 ? tree->parent : up == 1 ? previous : next;
    bool again = up > 0 && (is_tree_neighbour(tree, place) || (up == 2 && next == previous));
    return place < 0 || place == tree->place || again ? -1 : topology->rank_at[place];
}

static void transmit(struct virtual_rank *member, int to, int64_t *last, const uint8_t *bytes, size_t length)
{
    struct set *set = member->set;
    struct world *world = set->world;
    if (network_is_cut(world, member->rank, set->ranks[to]))
        return;
    struct message *message = malloc(sizeof *message + length + 1);
    message->length = length;
    memcpy(message->bytes, bytes, length);
    if (world->garbage_left && world->now > world->scenario.trouble)
        spoil(world, message);
    if (world->corrupt && random_chance(&world->random, 2))
        corrupt(world, message);
    int64_t time = later(world, world->scenario.delay);
    *last = time < *last ? *last : time;
    queue_push(&world->queue, (struct event){.time = *last,
                                             .kind = EVENT_DELIVER,
                                             .set = set->id,
                                             .rank = to,
                                             .argument = member->number,
                                             .message = message});
}

void network_send(void *owner, int to, const uint8_t *bytes, size_t length)
{
    struct virtual_rank *member = owner;
    struct set *set = member->set;
    bool upward = to == member_parent(member);
    if (member->closed || to < 0 || to >= set->size ||
        (!upward && member_parent(&set->members[to]) != member->number)) {
        violation(set->world, "rank %d of the set sent to rank %d%s", member->number, to,
                  member->closed ? " after the end" : "");
        return;
    }
    transmit(member, to, &set->links[upward ? member->number : to].last[upward], bytes, length);
}

void network_flood(void *owner, int except, const uint8_t *bytes, size_t length, bool fatal)
{
    struct virtual_rank *member = owner;
    struct set *set = member->set;
    int size = set->size, place = member->tree.place;
    (void)fatal;
    for (int i = 0; i < network_peers(member); i++) {
        int peer = network_peer(member, i), previous = (place + size - 1) % size;
        if (peer < 0 || peer == except)
            continue;
        if (is_tree_neighbour(&member->tree, set->topology.place_of[peer]))
            network_send(member, peer, bytes, length);
        else if (set->topology.place_of[peer] == previous)
            transmit(member, peer, &set->links[size + previous].last[1], bytes, length);
        else
            transmit(member, peer, &set->links[size + place].last[0], bytes, length);
    }
}

/* ---- receiving ----------------------------------------------------------------------------------------- */

static void tally_reports(struct world *world, struct wire_reader *reader, const struct virtual_rank *to)
{
    struct report report;
    wire_get_u64(reader);
    while (!wire_done(reader) && report_get(reader, 0, to->set->size, &report)) {
        world->tally->agreed += report.kind == REPORT_AGREED;
        world->tally->common += report.kind == REPORT_COMMON;
        world->tally->variants += report.kind == REPORT_VARIANTS;
        world->tally->eager += report.data != NULL;
        world->tally->row_reports += report.rows != NULL;
        world->tally->partly += report.partial;
        world->tally->join_reports += report.kind == REPORT_JOINED;
        if (report.kind == REPORT_JOINED && to->number == 0)
            to->set->last_received = to->set->topology.rank_at[report.rank];
        if (report.kind == REPORT_AGREED) {
            const struct agreement *agreement = table_agreement(&to->coordinator->table, report.id);
            world->tally->crossed += agreement && agreement->evicted;
        }
    }
}

static void tally_decisions(struct world *world, struct wire_reader *reader)
{
    struct decision decision;
    wire_get_u64(reader);
    while (!wire_done(reader) && decision_get(reader, &decision)) {
        world->tally->assigned += decision.kind == DECISION_ASSIGN;
        world->tally->evicted += decision.kind == DECISION_EVICT;
        world->tally->row_decisions += decision.kind == DECISION_ROWS && decision.rows_bytes;
        world->tally->rows_forgotten += decision.kind == DECISION_ROWS && !decision.rows_bytes;
        world->tally->returns += decision.kind == DECISION_JOINED;
    }
}

static void tally_message(struct world *world, const struct message *message, const struct virtual_rank *to)
{
    struct wire_reader reader = wire_reader_of(message->bytes, message->length);
    uint8_t kind = wire_get_u8(&reader);
    if (kind == MESSAGE_REPORT)
        tally_reports(world, &reader, to);
    else if (kind == MESSAGE_DECISIONS && to->number == 1) /* rank 1 stands for all */
        tally_decisions(world, &reader);
    world->tally->notes += kind == MESSAGE_STALLED;
}

static void receive(struct virtual_rank *member, int from, const struct message *message)
{
    struct world *world = member->set->world;
    world_trace(world, "receives", member, from, (int64_t)message->length);
    tally_message(world, message, member);
    coordinator_receive(member->coordinator, from, message->bytes, message->length, world->now);
    lateness_look(member);
    plan_turn(member);
}

void network_deliver(struct world *world, const struct event *event)
{
    struct set *set = world->sets[event->set];
    struct virtual_rank *member = &set->members[event->rank];
    struct message *message = event->message;
    if (network_is_cut(world, set->ranks[event->argument], member->rank)) {
        free(message);
    } else if (member->coordinator) {
        receive(member, event->argument, message);
        free(message);
    } else {
        struct early *early = malloc(sizeof *early);
        *early = (struct early){member->early, message, event->argument};
        member->early = early;
        world->tally->early++;
    }
}

void network_deliver_early(struct virtual_rank *member)
{
    struct early *first = NULL;
    while (member->early) {
        struct early *early = member->early;
        member->early = early->previous;
        early->previous = first;
        first = early;
    }
    while (first) {
        struct early *next = first->previous;
        receive(member, first->from, first->message);
        free(first->message);
        free(first);
        first = next;
    }
}
