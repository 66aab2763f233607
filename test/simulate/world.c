/* world.c - see world.h: set-up, the loop of events, and the record of what happened. */
#include "world.h"

#include "coordinate/message.h"
#include "coordinate/state.h"
#include "random.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define EVENT_LIMIT 20000000

/* ---- record -------------------------------------------------------------------------------------------- */

static void print_trace(const struct trace *trace)
{
    printf("  %8" PRId64 "  rank %-5d %-12s %6d %8" PRId64 "\n", trace->time, trace->rank, trace->what,
           trace->argument, trace->detail);
}

void world_trace(struct world *world, const char *what, int rank, int argument, int64_t detail)
{
    struct trace *trace = &world->trace[world->trace_count++ % TRACE_LENGTH];
    *trace = (struct trace){world->now, what, rank, argument, detail};
    uint64_t word = (uint64_t)world->now ^ (uint64_t)(unsigned char)what[0] << 56 ^ (uint64_t)rank << 36 ^
                    (uint64_t)argument << 16 ^ (uint64_t)detail;
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
    printf("\n%d ranks on %d hosts; the last events (time, rank, event, argument, detail):\n",
           world->scenario.size, world->scenario.hosts);
    uint64_t from = world->trace_count > TRACE_LENGTH ? world->trace_count - TRACE_LENGTH : 0;
    for (uint64_t i = from; i < world->trace_count; i++)
        print_trace(&world->trace[i % TRACE_LENGTH]);
}

int64_t later(struct world *world, int64_t longest)
{
    return world->now + random_below(&world->random, longest);
}

void plan_turn(struct virtual_rank *rank)
{
    struct world *world = rank->world;
    if (rank->turn_planned)
        return;
    rank->turn_planned = true;
    queue_push(&world->queue, (struct event){.time = later(world, world->scenario.think),
                                             .kind = EVENT_TURN,
                                             .rank = rank->number});
}

/* ---- set-up -------------------------------------------------------------------------------------------- */

static void start_rank(struct world *world, int number)
{
    const struct scenario *scenario = &world->scenario;
    struct virtual_rank *rank = &world->ranks[number];
    struct tree_node tree;
    hvd_status status;
    rank->world = world;
    rank->number = number;
    rank->slots = calloc((size_t)scenario->names, sizeof *rank->slots);
    hvd_code code =
        tree_node_init(&tree, number, scenario->host_sizes, scenario->hosts, scenario->fanout, &status);
    rank->tree = tree; /* the children are the coordinator's */
    struct coordinator_config config = {.rank = number,
                                        .size = scenario->size,
                                        .tree = tree,
                                        .fusion_threshold = scenario->fusion_threshold,
                                        .cycle_time = scenario->cycle_time,
                                        .cache_capacity = scenario->cache_capacity,
                                        .output = rank_output(rank)};
    if (code || coordinator_create(&config, &rank->coordinator, &status)) {
        fprintf(stderr, "%s\n", status.text);
        abort();
    }
    rank_start(rank);
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
                   (struct event){.time = later(world, 2 * scenario->trouble),
                                  .kind = EVENT_CUT,
                                  .rank = 1 + (int)random_below(&world->random, scenario->size - 1)});
    for (int i = 0; i < scenario->losses; i++) {
        int rank = (int)random_below(&world->random, scenario->size);
        int peer = (rank + 1) % scenario->size;
        bool neighbours = world->ranks[rank].tree.parent == peer || world->ranks[peer].tree.parent == rank;
        int64_t time = later(world, 2 * scenario->trouble);
        if (neighbours)
            continue;
        world->tally->losses++;
        queue_push(&world->queue,
                   (struct event){.time = time, .kind = EVENT_LOST, .rank = rank, .argument = peer});
        queue_push(&world->queue, (struct event){.time = time + random_below(&world->random, 1000),
                                                 .kind = EVENT_LOST,
                                                 .rank = peer,
                                                 .argument = rank});
    }
    world->garbage_left = scenario->garbage;
}

static void world_init(struct world *world, uint64_t seed, const struct options *options, struct tally *tally)
{
    *world = (struct world){.tally = tally,
                            .verbose = options->verbose,
                            .corrupt = options->corrupt,
                            .random = random_mix(seed ^ 0x5eed)};
    struct scenario *scenario = &world->scenario;
    scenario_init(scenario, seed, options->ranks);
    size_t requests = (size_t)scenario->names * (size_t)scenario->rounds;
    world->ranks = calloc((size_t)scenario->size, sizeof *world->ranks);
    world->links = calloc((size_t)scenario->size, sizeof *world->links);
    world->asked = calloc(requests, sizeof *world->asked);
    world->decided = calloc(requests, sizeof *world->decided);
    world->members = calloc(requests, sizeof *world->members);
    for (int r = 0; r < scenario->size; r++)
        start_rank(world, r);
    plan_trouble(world);
}

static void world_free(struct world *world)
{
    for (int r = 0; r < world->scenario.size; r++) {
        struct virtual_rank *rank = &world->ranks[r];
        for (int n = 0; n < world->scenario.names; n++) {
            if (rank->slots[n].state == SLOT_ASKED)
                free(rank->slots[n].pending.signature.bytes);
        }
        coordinator_destroy(rank->coordinator);
        free(rank->slots);
    }
    queue_free(&world->queue);
    free(world->ranks);
    free(world->links);
    free(world->asked);
    free(world->decided);
    free(world->members);
    scenario_free(&world->scenario);
}

/* ---- events -------------------------------------------------------------------------------------------- */

static void tally_reports(struct world *world, struct wire_reader *reader, int to)
{
    const struct coordinator *receiver = world->ranks[to].coordinator;
    struct report report;
    wire_get_u64(reader);
    while (!wire_done(reader) && report_get(reader, 0, world->scenario.size, &report)) {
        world->tally->agreed += report.kind == REPORT_AGREED;
        world->tally->common += report.kind == REPORT_COMMON;
        world->tally->variants += report.kind == REPORT_VARIANTS;
        if (report.kind == REPORT_AGREED) {
            const struct agreement *agreement = table_agreement(&receiver->table, report.id);
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
    }
}

static void tally_message(struct world *world, const struct message *message, int to)
{
    struct wire_reader reader = wire_reader_of(message->bytes, message->length);
    uint8_t kind = wire_get_u8(&reader);
    if (kind == MESSAGE_REPORT)
        tally_reports(world, &reader, to);
    else if (kind == MESSAGE_DECISIONS && to == 1) /* rank 1 stands for all */
        tally_decisions(world, &reader);
}

static void deliver(struct world *world, const struct event *event)
{
    struct virtual_rank *rank = &world->ranks[event->rank];
    struct message *message = event->message;
    int child = event->argument == rank->tree.parent ? rank->number : event->argument;
    if (!world->links[child].cut) {
        world_trace(world, "receives", rank->number, event->argument, (int64_t)message->length);
        tally_message(world, message, rank->number);
        coordinator_receive(rank->coordinator, event->argument, message->bytes, message->length);
        plan_turn(rank);
    }
    free(message);
}

/* What is on its way is gone, and both ends notice, each in its time. */
static void cut(struct world *world, int child)
{
    int parent = world->ranks[child].tree.parent;
    if (world->links[child].cut)
        return;
    world->links[child].cut = true;
    world->tally->cuts++;
    int64_t times[] = {later(world, 2000), later(world, 2000)};
    queue_push(&world->queue,
               (struct event){.time = times[0], .kind = EVENT_LOST, .rank = child, .argument = parent});
    queue_push(&world->queue,
               (struct event){.time = times[1], .kind = EVENT_LOST, .rank = parent, .argument = child});
}

static void flush(struct world *world, struct virtual_rank *rank)
{
    rank->turn_planned = false;
    coordinator_flush(rank->coordinator, world->now);
    int64_t next = coordinator_next_flush(rank->coordinator);
    if (next == INT64_MAX)
        return;
    if (next <= world->now) {
        violation(world, "rank %d asks at %" PRId64 " to be called at %" PRId64, rank->number, world->now,
                  next);
        return;
    }
    queue_push(&world->queue, (struct event){.time = next, .kind = EVENT_TIMER, .rank = rank->number});
}

static void handle(struct world *world, const struct event *event)
{
    static const char *const names[] = {"submits", "turns",  "timer", "deliver",
                                        "done",    "leaves", "cut",   "lost"};
    struct virtual_rank *rank = &world->ranks[event->rank];
    if (event->kind != EVENT_DELIVER)
        world_trace(world, names[event->kind], event->rank, event->argument, 0);
    switch (event->kind) {
    case EVENT_SUBMIT:
        rank_submit(rank, event->argument);
        break;
    case EVENT_TIMER:
        world->tally->timers++;
        flush(world, rank);
        break;
    case EVENT_TURN:
        flush(world, rank);
        break;
    case EVENT_DELIVER:
        deliver(world, event);
        break;
    case EVENT_DONE:
        rank_batch_done(rank, event->argument);
        break;
    case EVENT_LEAVE:
        rank_leave(rank);
        break;
    case EVENT_CUT:
        cut(world, event->rank);
        break;
    case EVENT_LOST:
        rank_lost(rank, event->argument);
        break;
    }
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
