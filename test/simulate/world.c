/* world.c - see world.h: set-up, the loop of events, and the record of what happened. */
#include "world.h"

#include "random.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define EVENT_LIMIT 20000000

/* ---- record -------------------------------------------------------------------------------------------- */

static void print_trace(const struct trace *trace)
{
    printf("  %8" PRId64 "  set %d rank %-5d %-12s %6d %8" PRId64 "\n", trace->time, trace->set, trace->rank,
           trace->what, trace->argument, trace->detail);
}

void world_trace(struct world *world, const char *what, const struct virtual_rank *member, int argument,
                 int64_t detail)
{
    int rank = member->rank;
    struct trace *trace = &world->trace[world->trace_count++ % TRACE_LENGTH];
    *trace = (struct trace){world->now, what, member->set->id, rank, argument, detail};
    uint64_t word = (uint64_t)world->now ^ (uint64_t)(unsigned char)what[0] << 56 ^ (uint64_t)rank << 36 ^
                    (uint64_t)argument << 16 ^ (uint64_t)member->set->id << 12 ^ (uint64_t)detail;
    world->digest = random_mix(world->digest + word);
    if (world->verbose)
        print_trace(trace);
}

void violation(struct world *world, const char *format, ...)
{
    va_list arguments;
    if (world->violated)
        return;
    world->violated = true;
    if (world->corrupt)
        return;
    printf("\nVIOLATION in seed %" PRIu64 " at time %" PRId64 ": ", world->scenario.seed, world->now);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n%d ranks on %d hosts; the last events (time, set, rank, event, argument, detail):\n",
           world->scenario.size, world->scenario.topology.hosts);
    uint64_t from = world->trace_count > TRACE_LENGTH ? world->trace_count - TRACE_LENGTH : 0;
    for (uint64_t i = from; i < world->trace_count; i++)
        print_trace(&world->trace[i % TRACE_LENGTH]);
}

int64_t later(struct world *world, int64_t longest)
{
    return world->now + random_below(&world->random, longest);
}

void plan_event(struct virtual_rank *member, enum event_kind kind, int64_t longest, int argument)
{
    struct world *world = member->set->world;
    queue_push(&world->queue, (struct event){.time = later(world, longest),
                                             .kind = kind,
                                             .set = member->set->id,
                                             .rank = member->number,
                                             .argument = argument});
}

void plan_turn(struct virtual_rank *member)
{
    if (member->turn_planned)
        return;
    member->turn_planned = true;
    plan_event(member, EVENT_TURN, member->set->world->scenario.think, 0);
}

/* ---- set-up -------------------------------------------------------------------------------------------- */

static void plan_loss(struct world *world)
{
    int size = world->scenario.size;
    int rank = (int)random_below(&world->random, size);
    int peer = (rank + 1) % size;
    const struct virtual_rank *members = world->sets[0]->members;
    bool neighbours = member_parent(&members[rank]) == peer || member_parent(&members[peer]) == rank;
    int64_t time = later(world, 2 * world->scenario.trouble);
    if (neighbours)
        return;
    world->tally->losses++;
    queue_push(&world->queue,
               (struct event){.time = time, .kind = EVENT_LOST, .rank = rank, .argument = peer});
    queue_push(&world->queue, (struct event){.time = time + random_below(&world->random, 1000),
                                             .kind = EVENT_LOST,
                                             .rank = peer,
                                             .argument = rank});
}

static void plan_trouble(struct world *world)
{
    const struct scenario *scenario = &world->scenario;
    for (int i = 0; i < scenario->leavers; i++)
        queue_push(&world->queue, (struct event){.time = later(world, 2 * scenario->trouble),
                                                 .kind = EVENT_LEAVE,
                                                 .rank = (int)random_below(&world->random, scenario->size)});
    for (int i = 0; i < scenario->cuts; i++)
        queue_push(&world->queue,
                   (struct event){.time = later(world, 2 * scenario->trouble), .kind = EVENT_CUT});
    for (int i = 0; i < scenario->losses; i++)
        plan_loss(world);
    for (int i = 0; i < scenario->broken; i++)
        queue_push(&world->queue,
                   (struct event){.time = scenario->trouble + random_below(&world->random, scenario->look),
                                  .kind = EVENT_BROKEN,
                                  .rank = (int)random_below(&world->random, scenario->size)});
    world->garbage_left = scenario->garbage;
    if (scenario->split)
        split_plan(world);
}

static void world_init(struct world *world, uint64_t seed, const struct options *options, struct tally *tally)
{
    *world = (struct world){.tally = tally,
                            .verbose = options->verbose,
                            .corrupt = options->corrupt,
                            .now = 1, /* 0 means none */
                            .random = random_mix(seed ^ 0x5eed),
                            .finding_random = random_mix(seed ^ 0xf1d)};
    if (random_chance(&world->finding_random, 20))
        world->findings_left = 1 + (int)random_below(&world->finding_random, FINDINGS_MOST);
    scenario_init(&world->scenario, seed, options->ranks);
    order_init(world);
    world->sets[0] = set_create(world, 0, NULL, world->scenario.size);
    for (int r = 0; r < world->scenario.size; r++) {
        member_open(&world->sets[0]->members[r]);
        member_start(&world->sets[0]->members[r]);
    }
    plan_trouble(world);
}

static void world_free(struct world *world)
{
    for (int s = 0; s <= SETS_LIMIT; s++)
        set_free(world->sets[s]);
    order_free(world);
    queue_free(&world->queue);
    free(world->lost);
    free(world->cut_times);
    scenario_free(&world->scenario);
}

/* ---- events -------------------------------------------------------------------------------------------- */

static void plan_timer(struct virtual_rank *member, int64_t time)
{
    member->timer = time;
    queue_push(
        &member->set->world->queue,
        (struct event){.time = time, .kind = EVENT_TIMER, .set = member->set->id, .rank = member->number});
}

static void tune(struct virtual_rank *root)
{
    struct world *world = root->set->world;
    root->set->fusion_threshold = draw_threshold(&world->random);
    coordinator_tune(root->coordinator, root->set->fusion_threshold, draw_cycle_time(&world->random));
    world->tally->tuned++;
}

static void flush(struct virtual_rank *member)
{
    struct world *world = member->set->world;
    member->turn_planned = false;
    if (member->number == 0 && random_chance(&world->random, world->scenario.tune_percent))
        tune(member);
    coordinator_flush(member->coordinator, world->now);
    lateness_look(member);
    int64_t next = coordinator_next_flush(member->coordinator);
    if (next == INT64_MAX)
        return;
    if (next <= world->now) {
        violation(world, "rank %d requests at %" PRId64 " to be called at %" PRId64, member->rank, world->now,
                  next);
        return;
    }
    if (next < member->timer || member->timer <= world->now)
        plan_timer(member, next);
}

/* What concerns one member of one set. */
static void handle_member(struct virtual_rank *member, const struct event *event)
{
    switch (event->kind) {
    case EVENT_SUBMIT:
        member_submit(member, event->argument);
        break;
    case EVENT_JOIN:
        member_join(member);
        break;
    case EVENT_TIMER:
        member->set->world->tally->timers++;
        flush(member);
        break;
    case EVENT_TURN:
        flush(member);
        break;
    case EVENT_DONE:
        if (!split_blocks(member, event->argument))
            member_batch_done(member, event->argument);
        break;
    case EVENT_OPEN:
        member_adopt(member);
        break;
    default:
        network_deliver(member->set->world, event);
    }
    if (member->coordinator)
        spread(member);
}

static void find_broken(struct virtual_rank *member)
{
    char text[64];
    snprintf(text, sizeof text, "broken: a path from rank %d", member->rank);
    coordinator_broken(member->coordinator, text);
    plan_turn(member);
    member->set->world->tally->broken++;
}

static void handle(struct world *world, const struct event *event)
{
    static const char *const names[] = {"submits", "joins",  "turns", "timer", "deliver", "done",
                                        "opens",   "leaves", "cut",   "look",  "lost",    "broken"};
    struct virtual_rank *member = &world->sets[event->set]->members[event->rank];
    if (split_has_lost(world, member->rank)) {
        free(event->message);
        return;
    }
    if (event->kind < EVENT_LOOK && event->kind != EVENT_TURN && event->kind != EVENT_TIMER)
        world->active = world->now;
    if (event->kind != EVENT_DELIVER)
        world_trace(world, names[event->kind], member, event->argument, 0);
    if (event->kind == EVENT_LEAVE)
        rank_leave(world, event->rank);
    else if (event->kind == EVENT_CUT)
        cut_some_edge(world);
    else if (event->kind == EVENT_LOOK)
        split_look(world, event->rank);
    else if (event->kind == EVENT_LOST)
        rank_lost(world, event->rank, event->argument);
    else if (event->kind == EVENT_BROKEN)
        find_broken(member);
    else
        handle_member(member, event);
}

/* The rank of the job to which it happened. */
static int rank_of(const struct world *world, const struct event *event)
{
    bool of_member = event->kind < EVENT_LOOK && event->kind != EVENT_LEAVE;
    return of_member ? world->sets[event->set]->members[event->rank].rank : event->rank;
}

bool world_run(uint64_t seed, const struct options *options, struct tally *tally, uint64_t *digest)
{
    struct world world;
    struct event event;
    uint64_t events = 0;
    world_init(&world, seed, options, tally);
    while (!world.violated && queue_pop(&world.queue, &event)) {
        world.now = event.time;
        handle(&world, &event);
        if (event.kind != EVENT_CUT)
            order_look(&world, rank_of(&world, &event));
        if (++events > EVENT_LIMIT)
            violation(&world, "it does not come to an end");
    }
    if (!world.violated)
        check_end(&world);
    tally->events += events;
    *digest = world.digest;
    world_free(&world);
    return !world.violated || world.corrupt;
}
