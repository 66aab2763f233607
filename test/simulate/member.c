/* member.c - a virtual rank in one process set: submits in its own order, joins, runs batches for a while. */
#include "base/status.h"
#include "random.h"
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the program --------------------------------------------------------------------------------------- */

/* Now and then a rank sleeps for several stall times before its request. */
static void plan_submission(struct virtual_rank *member, int name)
{
    struct world *world = member->set->world;
    const struct scenario *scenario = &world->scenario;
    bool sleeps = scenario->stall_time && random_below(&world->random, 10000) < scenario->sleep_percent;
    world->tally->sleeps += sleeps;
    plan_event(member, EVENT_SUBMIT, sleeps ? 6 * scenario->stall_time : scenario->spread, name);
}

static void plan_round(struct virtual_rank *member, int name)
{
    const struct slot *slot = &member->slots[name];
    if (program_requests(&member->set->program, member->number, member->epoch, slot->round))
        plan_submission(member, name);
}

/* All sets are done with: the finale. */
static void leave_when_through(struct virtual_rank *member)
{
    struct world *world = member->set->world;
    member->through = true;
    if (!world->scenario.finale)
        return;
    for (int s = 0; s <= SETS_LIMIT; s++) {
        struct virtual_rank *other = world->sets[s] ? find_member(world->sets[s], member->rank) : NULL;
        if (other && !other->through && !other->left)
            return;
    }
    plan_event(find_member(world->sets[0], member->rank), EVENT_LEAVE, world->scenario.spread, 0);
}

static void join_when_due(struct virtual_rank *member)
{
    const struct program *program = &member->set->program;
    if (member->to_finish == 0 && !program->joins)
        leave_when_through(member);
    bool due = member->to_submit == 0 && (member->eager || member->to_finish == 0);
    if (!program->joins || !due || member->join_planned)
        return;
    member->join_planned = true;
    plan_event(member, EVENT_JOIN, member->set->world->scenario.spread, 0);
}

static void start_epoch(struct virtual_rank *member)
{
    const struct program *program = &member->set->program;
    int length = program->lengths[member->epoch * program->size + member->number];
    member->to_submit = member->to_finish = length * program->names;
    member->eager = random_chance(&member->set->world->random, 50);
    member->joined = member->join_planned = false;
    member->idle_names = 0;
    for (int n = 0; n < program->names; n++) {
        member->slots[n].round = program->starts[member->epoch];
        plan_round(member, n);
    }
    join_when_due(member);
}

void member_start(struct virtual_rank *member)
{
    bool usable = member->coordinator && (member->added || member->set->id == 0);
    if (member->started || !usable || member->left)
        return;
    member->started = true;
    for (int n = 0; n < member->set->program.names; n++)
        member->slots[n] = (struct slot){.name = n, .member = member};
    start_epoch(member);
}

/* ---- submitting --------------------------------------------------------------------------------------- */

static void submit_twice(struct virtual_rank *member, const struct slot *slot)
{
    struct world *world = member->set->world;
    struct pending second = slot->pending;
    hvd_status status;
    hvd_code code = coordinator_submit(member->coordinator, &second, world->now, &status);
    world->tally->duplicates++;
    if (code != HVD_DUPLICATE_NAME)
        violation(world, "rank %d: a name in flight twice gave %s", member->rank, hvd_code_name(code));
}

static void refused(struct virtual_rank *member, hvd_code code, const hvd_status *status)
{
    struct world *world = member->set->world;
    hvd_code health = coordinator_health(member->coordinator, NULL);
    member->stopped = true;
    world->tally->refusals++;
    if (code != health && !(member->left && code == HVD_SHUT_DOWN))
        violation(world, "rank %d: a submission was refused with %s (%s), health is %s", member->rank,
                  hvd_code_name(code), status->text, hvd_code_name(health));
}

/* Unnamed ones must get the same number everywhere. */
static void name_request(struct slot *slot)
{
    struct set *set = slot->member->set;
    struct world *world = set->world;
    slot->pending.name = slot->text;
    slot->pending.unnamed = slot->name == set->program.unnamed;
    if (!slot->pending.unnamed) {
        program_name(&set->program, slot->name, slot->round, slot->text, sizeof slot->text);
        return;
    }
    struct signature_summary summary;
    signature_summarize(&slot->pending.signature, &summary);
    uint64_t number = coordinator_unnamed(slot->member->coordinator, summary.operation);
    snprintf(slot->text, sizeof slot->text, "noname.%llu", (unsigned long long)number);
    uint64_t *agreed = &set->numbers[slot->round];
    world->tally->unnamed++;
    *agreed = *agreed ? *agreed : number + 1;
    if (*agreed != number + 1)
        violation(world, "rank %d: round %d of the unnamed has the number %llu, elsewhere %llu",
                  slot->member->rank, slot->round, (unsigned long long)number,
                  (unsigned long long)*agreed - 1);
}

static void note_asked(struct slot *slot)
{
    struct set *set = slot->member->set;
    struct requested *requested = &set->requested[code_of(slot)];
    if (!requested->count++)
        requested->first = set->world->now;
    requested->last = set->world->now;
    if (slot->round > set->latest[slot->name])
        set->latest[slot->name] = slot->round;
    slot->asked_at = set->world->now;
}

void member_submit(struct virtual_rank *member, int name)
{
    struct set *set = member->set;
    struct world *world = set->world;
    const struct scenario *scenario = &world->scenario;
    struct slot *slot = &member->slots[name];
    hvd_status status;
    if (member->stopped || member->closed)
        return;
    if (scenario->mute && set->id == 0 && member->number == set->size - 1 && name == 0 &&
        slot->round == set->program.rounds - 1)
        return;
    slot->pending = (struct pending){
        .owner = slot, .apart = program_apart(plan_of(&set->program, name, slot->round), member->number)};
    slot->pending.signature = program_signature(&set->program, scenario, name, slot->round, member->number);
    name_request(slot);
    slot->state = SLOT_ASKED;
    slot->found = member->found;
    hvd_code code = coordinator_submit(member->coordinator, &slot->pending, world->now, &status);
    lateness_look(member);
    if (code) {
        slot->state = SLOT_IDLE;
        free(slot->pending.signature.bytes);
        refused(member, code, &status);
        return;
    }
    note_asked(slot);
    findings_draw(slot);
    world->tally->submitted++;
    member->to_submit--;
    if (random_chance(&world->random, scenario->duplicate_percent))
        submit_twice(member, slot);
    plan_turn(member);
    join_when_due(member);
}

/* While a rank has joined it may submit nothing. */
static void submit_joined(struct virtual_rank *member)
{
    struct world *world = member->set->world;
    hvd_status status;
    struct pending request = {.name = "late", .signature = join_signature()};
    hvd_code code = coordinator_submit(member->coordinator, &request, world->now, &status);
    free(request.signature.bytes);
    world->tally->late++;
    if (code != HVD_INVALID_ARGUMENT)
        violation(world, "rank %d: a submission after its join gave %s", member->rank, hvd_code_name(code));
}

void member_join(struct virtual_rank *member)
{
    struct set *set = member->set;
    struct world *world = set->world;
    hvd_status status;
    if (member->stopped || member->closed)
        return;
    member->join = (struct pending){.name = "join", .signature = join_signature(), .owner = member};
    hvd_code code = coordinator_submit(member->coordinator, &member->join, world->now, &status);
    lateness_look(member);
    if (code) {
        free(member->join.signature.bytes);
        refused(member, code, &status);
        return;
    }
    member->joined = true;
    set->join_times[member->epoch * set->size + member->number] = world->now + 1;
    set->joined[member->epoch]++;
    if (member->number == 0)
        set->last_received = 0;
    world->tally->joins++;
    if (random_chance(&world->random, 10))
        submit_joined(member);
    plan_turn(member);
}

/* After a join: the next epoch, once all batches of the last one are done here. */
static void come_back(struct virtual_rank *member)
{
    if (member->to_finish)
        return;
    member->back = false;
    if (member->epoch < member->set->program.epochs)
        start_epoch(member);
    else
        leave_when_through(member);
}

/* ---- the end of a request ------------------------------------------------------------------------------ */

/* Continues with the next request after a round of this name has finished. */
static void advance(struct slot *slot)
{
    struct virtual_rank *member = slot->member;
    const struct program *program = &member->set->program;
    slot->state = SLOT_IDLE;
    slot->round++;
    member->to_finish--;
    if (member->back) {
        come_back(member);
        return;
    }
    if (!program->lockstep) {
        plan_round(member, slot->name);
    } else if (++member->idle_names == program->names) {
        member->idle_names = 0;
        for (int n = 0; n < program->names; n++)
            plan_round(member, n);
    }
    join_when_due(member);
}

void member_batch_done(struct virtual_rank *member, int batch)
{
    struct set *set = member->set;
    const struct decided *decided = &set->decided[batch];
    member->running--;
    member->running_short -= decided->is_short;
    order_done(member, batch);
    coordinator_batch_done(member->coordinator, decided->sequence);
    for (int i = 0; i < decided->count; i++) {
        int code = set->codes[decided->first + i];
        struct slot *slot = &member->slots[code / set->program.rounds];
        bool mine = slot->state == SLOT_RUNS && slot->round == code % set->program.rounds;
        const struct plan *plan = &set->program.plans[code];
        if (mine)
            advance(slot);
        struct set *added = plan->change == CHANGE_ADD ? set->world->sets[plan->set] : NULL;
        struct virtual_rank *new = added ? find_member(added, member->rank) : NULL;
        if (!mine || !new)
            continue;
        new->added = true;
        member_start(new);
    }
    plan_turn(member);
}

static void on_contribute(void *owner, const struct pending *request, uint8_t *data)
{
    struct virtual_rank *member = owner;
    uint64_t first = eager_word(member->set, code_of(request->owner), member->number);
    for (uint64_t i = 0; i < request->eager_bytes / sizeof i; i++)
        memcpy(data + i * sizeof i, &(uint64_t){first + i}, sizeof i);
}

static uint64_t on_rows(void *owner, const struct pending *request, int index)
{
    const struct virtual_rank *member = owner;
    const struct slot *slot = request->owner;
    return program_rows(&member->set->program, slot->name, slot->round, member->number, index);
}

static void on_combine(void *owner, const struct signature_summary *what, uint8_t *sum, const uint8_t *other)
{
    (void)owner;
    for (size_t at = 0; at < what->bytes; at += sizeof(uint64_t)) {
        uint64_t a, b;
        memcpy(&a, sum + at, sizeof a);
        memcpy(&b, other + at, sizeof b);
        memcpy(sum + at, &(uint64_t){a + b}, sizeof a);
    }
}

void member_started(struct virtual_rank *member, int batch)
{
    struct set *set = member->set;
    /* Nobody is done before all have started. */
    if (++set->decided[batch].started < set->size)
        return;
    for (int m = 0; m < set->size; m++)
        plan_event(&set->members[m], EVENT_DONE, set->world->scenario.execution, batch);
}

static void on_run(void *owner, const struct batch *batch)
{
    struct virtual_rank *member = owner;
    struct set *set = member->set;
    struct world *world = set->world;
    world_trace(world, "runs", member, member->batches, (int64_t)batch->sequence);
    check_batch(member, batch);
    if (world->violated)
        return;
    for (int i = 0; i < batch->count; i++) {
        struct slot *slot = batch->requests[i] ? batch->requests[i]->owner : NULL;
        world->tally->absent += !slot;
        if (!slot)
            continue;
        slot->state = SLOT_RUNS;
        if (slot->pending.apart && slot->asked_at > member->apart_asked)
            member->apart_asked = slot->asked_at;
        free(slot->pending.signature.bytes);
        change_sets(member, &set->program.plans[code_of(slot)]);
        world->tally->ran++;
    }
    if (batch->result) { /* it is over */
        member->batches++;
        if (batch->requests[0])
            advance(batch->requests[0]->owner);
        return;
    }
    member->running++;
    member->running_short += batch->is_short;
    bool ordered = order_concerns(member, batch);
    set->decided[member->batches].ordered = ordered;
    if (ordered)
        order_ask(member); /* it starts in order_look */
    else
        member_started(member, member->batches);
    member->batches++;
}

static void on_finish(void *owner, struct pending *request, const hvd_status *status)
{
    struct virtual_rank *member = owner;
    struct world *world = member->set->world;
    world_trace(world, "ends unrun", member, 0, status->code);
    free(request->signature.bytes);
    if (request == &member->join) {
        if (!member->joined || status->code == HVD_MISMATCH)
            violation(world, "rank %d: its join ended with %s", member->rank, hvd_code_name(status->code));
        member->joined = false;
        return;
    }
    struct slot *slot = request->owner;
    if (slot->member != member || slot->state != SLOT_ASKED || member->closed) {
        violation(world, "rank %d: \"%s\" ended, which was not in flight", member->rank, slot->text);
        return;
    }
    check_finish(slot, status);
    if (status->code == HVD_MISMATCH)
        advance(slot);
    else
        slot->state = SLOT_IDLE;
}

static void on_joined(void *owner, struct pending *request, int last_rank)
{
    struct virtual_rank *member = owner;
    struct world *world = member->set->world;
    world_trace(world, "joined", member, member->epoch, last_rank);
    if (request != &member->join || !member->joined || member->closed) {
        violation(world, "rank %d: the end of a join that is not in flight", member->rank);
        return;
    }
    free(request->signature.bytes);
    request->signature.bytes = NULL; /* whoever tidies up after a violation finds none */
    const struct virtual_rank *last = find_member(member->set, last_rank);
    check_joined(member, last ? last->number : -1);
    if (world->violated)
        return;
    member->joined = false;
    member->back = true;
    member->epoch++;
    come_back(member);
}

static void on_stalled(void *owner, const char *name, int64_t waited, const struct rank_set *missing)
{
    check_stall(owner, &(struct stall){name, waited, missing});
}

static void on_silent(void *owner, const struct silence *silence, hvd_status *cause)
{
    char text[256];
    split_check_cause(owner, silence);
    if (silence->lost.count)
        status_set(cause, HVD_TIMED_OUT, "%s: %s", silence->cut_off ? "cut off" : "silent",
                   rank_set_text(&silence->lost, text, sizeof text));
    else
        status_set(cause, HVD_TIMED_OUT, "silent: %d pairs of hosts, as %d and %d", silence->pair_count,
                   silence->pairs[0][0], silence->pairs[0][1]);
}

/* Back end and pieces as a tuner would try them. */
static struct choice on_choose(void *owner, const struct signature_summary *what, uint64_t bytes,
                               bool rows_unknown)
{
    struct virtual_rank *member = owner;
    if (member->number != 0)
        violation(member->set->world, "rank %d chose how a batch moves", member->rank);
    struct choice choice = {.algorithm = (uint8_t)(bytes * 7 + what->operation + 1)};
    choice.backend = (uint8_t)random_below(&member->set->world->random, 256);
    choice.piece_exponent = (uint8_t)random_below(&member->set->world->random, 256);
    member->set->rows_unknown = rows_unknown;
    return member->set->chosen = choice;
}

static void on_closed(void *owner)
{
    struct virtual_rank *member = owner;
    world_trace(member->set->world, "closed", member, 0, 0);
    if (member->closed || member->running)
        violation(member->set->world, "rank %d: closed %s", member->rank,
                  member->running ? "while a batch runs" : "twice");
    member->closed = true;
    if (!member->left) /* the program learns that the job is closed, and leaves as well */
        member->left_at = member->set->world->now;
}

struct coordinator_output member_output(struct virtual_rank *member)
{
    return (struct coordinator_output){.owner = member,
                                       .send = network_send,
                                       .flood = network_flood,
                                       .contribute = on_contribute,
                                       .combine = on_combine,
                                       .rows = on_rows,
                                       .run = on_run,
                                       .finish = on_finish,
                                       .choose = on_choose,
                                       .joined = on_joined,
                                       .turn = order_turn,
                                       .late = lateness_shown,
                                       .found = findings_received,
                                       .stalled = on_stalled,
                                       .silent = on_silent,
                                       .closed = on_closed};
}
