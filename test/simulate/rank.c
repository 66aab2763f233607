/* rank.c - a virtual rank: submits in its own order, runs batches for a while, leaves, loses peers. */
#include "base/status.h"
#include "coordinate/message.h"
#include "random.h"
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void plan_submission(struct virtual_rank *rank, int name)
{
    struct world *world = rank->world;
    queue_push(&world->queue, (struct event){.time = later(world, world->scenario.spread),
                                             .kind = EVENT_SUBMIT,
                                             .rank = rank->number,
                                             .argument = name});
}

void rank_start(struct virtual_rank *rank)
{
    for (int n = 0; n < rank->world->scenario.names; n++) {
        rank->slots[n].name = n;
        rank->slots[n].rank = rank;
        plan_submission(rank, n);
    }
}

/* ---- submitting --------------------------------------------------------------------------------------- */

static void submit_twice(struct virtual_rank *rank, const struct slot *slot)
{
    struct pending second = slot->pending;
    hvd_status status;
    hvd_code code = coordinator_submit(rank->coordinator, &second, &status);
    rank->world->tally->duplicates++;
    if (code != HVD_DUPLICATE_NAME)
        violation(rank->world, "rank %d: a name in flight twice gave %s", rank->number, hvd_code_name(code));
}

static void refused(struct virtual_rank *rank, hvd_code code, const hvd_status *status)
{
    hvd_code health = coordinator_health(rank->coordinator, NULL);
    rank->stopped = true;
    rank->world->tally->refusals++;
    if (code != health && !(rank->left && code == HVD_SHUT_DOWN))
        violation(rank->world, "rank %d: a submission was refused with %s (%s), health is %s", rank->number,
                  hvd_code_name(code), status->text, hvd_code_name(health));
}

void rank_submit(struct virtual_rank *rank, int name)
{
    struct world *world = rank->world;
    struct scenario *scenario = &world->scenario;
    struct slot *slot = &rank->slots[name];
    hvd_status status;
    if (rank->stopped || rank->closed)
        return;
    scenario_name(scenario, name, slot->round, slot->text, sizeof slot->text);
    slot->pending =
        (struct pending){.name = slot->text,
                         .signature = scenario_signature(scenario, name, slot->round, rank->number),
                         .owner = slot};
    slot->state = SLOT_ASKED;
    world->asked[name * scenario->rounds + slot->round]++;
    hvd_code code = coordinator_submit(rank->coordinator, &slot->pending, &status);
    if (code) {
        slot->state = SLOT_IDLE;
        free(slot->pending.signature.bytes);
        world->asked[name * scenario->rounds + slot->round]--;
        refused(rank, code, &status);
        return;
    }
    world->tally->submitted++;
    if (random_chance(&world->random, scenario->duplicate_percent))
        submit_twice(rank, slot);
    plan_turn(rank);
}

/* ---- the end of a request ------------------------------------------------------------------------------ */

static void leave_when_through(struct virtual_rank *rank)
{
    struct world *world = rank->world;
    if (rank->finished_names == world->scenario.names && world->scenario.finale && !rank->left)
        queue_push(&world->queue, (struct event){.time = later(world, world->scenario.spread),
                                                 .kind = EVENT_LEAVE,
                                                 .rank = rank->number});
}

/* The round of this name is over; what comes next? */
static void advance(struct slot *slot)
{
    struct virtual_rank *rank = slot->rank;
    const struct scenario *scenario = &rank->world->scenario;
    slot->state = SLOT_IDLE;
    slot->round++;
    if (slot->round == scenario->rounds) {
        rank->finished_names++;
        leave_when_through(rank);
    }
    if (!scenario->lockstep) {
        if (slot->round < scenario->rounds)
            plan_submission(rank, slot->name);
    } else if (++rank->idle_names == scenario->names) {
        rank->idle_names = 0;
        for (int n = 0; slot->round < scenario->rounds && n < scenario->names; n++)
            plan_submission(rank, n);
    }
}

void rank_batch_done(struct virtual_rank *rank, int batch)
{
    struct world *world = rank->world;
    const struct decided *decided = &world->decided[batch];
    for (int i = 0; i < decided->count; i++)
        advance(&rank->slots[world->members[decided->first + i] / world->scenario.rounds]);
    rank->running--;
    coordinator_batch_done(rank->coordinator, decided->sequence);
    plan_turn(rank);
}

static void on_run(void *owner, const struct batch *batch)
{
    struct virtual_rank *rank = owner;
    struct world *world = rank->world;
    world_trace(world, "runs", rank->number, rank->batches, (int64_t)batch->sequence);
    check_batch(rank, batch);
    if (world->violated)
        return;
    for (int i = 0; i < batch->count; i++) {
        struct slot *slot = batch->requests[i]->owner;
        slot->state = SLOT_RUNS;
        free(slot->pending.signature.bytes);
    }
    rank->running++;
    world->tally->ran += (uint64_t)batch->count;
    queue_push(&world->queue, (struct event){.time = later(world, world->scenario.execution),
                                             .kind = EVENT_DONE,
                                             .rank = rank->number,
                                             .argument = rank->batches++});
}

static void check_cause(struct slot *slot, const hvd_status *status)
{
    struct virtual_rank *rank = slot->rank;
    struct world *world = rank->world;
    const struct scenario *scenario = &world->scenario;
    bool lost = status->code == HVD_PEER_LOST && strncmp(status->text, "lost: ", 6) == 0;
    bool refusal = status->code == HVD_REFUSED && strstr(status->text, " sent rank ");
    bool left = status->code == HVD_SHUT_DOWN && strstr(status->text, " has left the job");
    if (status->code == HVD_MISMATCH && scenario_mismatch(scenario, slot->name, slot->round))
        world->tally->mismatches += rank->number == 0;
    else if (left)
        world->tally->shut_down++;
    else if ((lost && scenario->cuts + scenario->losses) || (refusal && scenario->garbage))
        world->tally->failed++;
    else
        violation(world, "rank %d: \"%s\" in round %d ended with %s: %s", rank->number, slot->text,
                  slot->round, hvd_code_name(status->code), status->text);
    if (status->code == HVD_MISMATCH &&
        world->asked[slot->name * scenario->rounds + slot->round] != scenario->size)
        violation(world, "rank %d: \"%s\" failed before every rank had submitted it", rank->number,
                  slot->text);
}

static void on_finish(void *owner, struct pending *request, const hvd_status *status)
{
    struct virtual_rank *rank = owner;
    struct slot *slot = request->owner;
    world_trace(rank->world, "ends unrun", rank->number, slot->name, status->code);
    if (slot->rank != rank || slot->state != SLOT_ASKED || rank->closed) {
        violation(rank->world, "rank %d: \"%s\" ended, which was not in flight", rank->number, slot->text);
        return;
    }
    check_cause(slot, status);
    free(slot->pending.signature.bytes);
    if (status->code == HVD_MISMATCH) {
        advance(slot);
    } else {
        slot->state = SLOT_IDLE;
    }
}

/* ---- messages ------------------------------------------------------------------------------------------ */

/* Spoils a message beyond doubt: no kind, no header, or something behind it. */
static struct message *spoil(struct world *world, struct message *message)
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
    return message;
}

/* A peer gone mad: what it says may still be well-formed. */
static void corrupt(struct world *world, struct message *message)
{
    for (int i = 0; i < 3; i++)
        message->bytes[random_below(&world->random, (int64_t)message->length)] ^=
            (uint8_t)(1 << random_below(&world->random, 8));
}

static void on_send(void *owner, int to, const uint8_t *bytes, size_t length)
{
    struct virtual_rank *rank = owner;
    struct world *world = rank->world;
    bool upward = to == rank->tree.parent;
    int child = upward ? rank->number : to;
    if (rank->closed || to < 0 || to >= world->scenario.size ||
        (!upward && world->ranks[to].tree.parent != rank->number)) {
        violation(world, "rank %d sent to rank %d%s", rank->number, to, rank->closed ? " after the end" : "");
        return;
    }
    struct link *link = &world->links[child];
    if (link->cut)
        return;
    struct message *message = malloc(sizeof *message + length + 1);
    message->length = length;
    memcpy(message->bytes, bytes, length);
    if (world->garbage_left && world->now > world->scenario.trouble)
        spoil(world, message);
    if (world->corrupt && random_chance(&world->random, 2))
        corrupt(world, message);
    int64_t time = later(world, world->scenario.delay);
    if (time < link->last[upward])
        time = link->last[upward];
    link->last[upward] = time;
    queue_push(
        &world->queue,
        (struct event){
            .time = time, .kind = EVENT_DELIVER, .rank = to, .argument = rank->number, .message = message});
}

/* The connections of a virtual rank are its edges of the tree. */
static void on_flood(void *owner, int except, const uint8_t *bytes, size_t length)
{
    const struct virtual_rank *rank = owner;
    if (rank->tree.parent >= 0 && rank->tree.parent != except)
        on_send(owner, rank->tree.parent, bytes, length);
    for (int i = 0; i < rank->tree.child_count; i++) {
        if (rank->tree.children[i] != except)
            on_send(owner, rank->tree.children[i], bytes, length);
    }
}

static uint16_t on_choose(void *owner, hvd_operation operation, hvd_reduction reduction, uint64_t bytes)
{
    (void)reduction;
    const struct virtual_rank *rank = owner;
    if (rank->number != 0)
        violation(rank->world, "rank %d chose an algorithm", rank->number);
    return (uint16_t)(bytes * 7 + operation);
}

static void on_closed(void *owner)
{
    struct virtual_rank *rank = owner;
    world_trace(rank->world, "closed", rank->number, 0, 0);
    if (rank->closed || rank->running)
        violation(rank->world, "rank %d: closed %s", rank->number,
                  rank->running ? "while a batch runs" : "twice");
    rank->closed = true;
}

struct coordinator_output rank_output(struct virtual_rank *rank)
{
    return (struct coordinator_output){
        .owner = rank,
        .send = on_send,
        .flood = on_flood,
        .run = on_run,
        .finish = on_finish,
        .choose_algorithm = on_choose,
        .closed = on_closed,
    };
}

/* ---- leaving and losing -------------------------------------------------------------------------------- */

void rank_leave(struct virtual_rank *rank)
{
    if (rank->left)
        return;
    rank->left = true;
    rank->world->tally->leaves += rank->finished_names < rank->world->scenario.names;
    coordinator_leave(rank->coordinator);
    plan_turn(rank);
}

void rank_lost(struct virtual_rank *rank, int peer)
{
    hvd_status cause;
    status_set(&cause, HVD_PEER_LOST, "lost: rank %d by rank %d", peer, rank->number);
    hvd_code before = coordinator_health(rank->coordinator, NULL);
    coordinator_abort(rank->coordinator, peer, &cause);
    hvd_code after = coordinator_health(rank->coordinator, NULL);
    if (before == HVD_OK && after != HVD_PEER_LOST)
        violation(rank->world, "rank %d lost rank %d and stays healthy", rank->number, peer);
    if (after == HVD_SHUT_DOWN)
        rank->world->tally->late_losses++;
    if (coordinator_pending_count(rank->coordinator) && after != HVD_OK)
        violation(rank->world, "rank %d lost rank %d and keeps requests", rank->number, peer);
    plan_turn(rank);
}
