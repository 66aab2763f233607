/* world.c - see world.h: the loop of a run, and the record of what happened. */
#include "world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HAPPENINGS_LIMIT 5000000

void note(struct world *world, const char *format, ...)
{
    char *text = world->trace[world->traced++ % TRACE_LIMIT];
    va_list arguments;
    int length = snprintf(text, sizeof world->trace[0], "%10.4f  ", (double)world->now / SECOND);
    va_start(arguments, format);
    vsnprintf(text + length, sizeof world->trace[0] - (size_t)length, format, arguments);
    va_end(arguments);
    for (const char *at = text; *at; at++)
        world->digest = random_mix(world->digest + (unsigned char)*at);
    if (world->verbose)
        printf("%s\n", text);
}

void violation(struct world *world, const char *format, ...)
{
    va_list arguments;
    if (world->violated)
        return;
    world->violated = true;
    printf("\nVIOLATION in seed %" PRIu64 " at time %.4f: ", world->seed, (double)world->now / SECOND);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n%d to %d ranks, %d hosts; the last events (seconds, event):\n", world->config.min,
           world->config.max, world->host_count);
    uint64_t from = world->traced > TRACE_LIMIT ? world->traced - TRACE_LIMIT : 0;
    for (uint64_t i = from; i < world->traced && !world->verbose; i++)
        printf("%s\n", world->trace[i % TRACE_LIMIT]);
}

int64_t later(struct world *world, int64_t longest)
{
    return world->now + random_below(&world->random, longest);
}

void plan(struct world *world, int64_t time, enum kind kind, int a, int b, int c, int d)
{
    queue_push(&world->queue, (struct happening){.time = time, .kind = kind, .a = a, .b = b, .c = c, .d = d});
}

/* ---- what happens to processes by itself --------------------------------------------------------------- */

static void end_group(struct world *world, struct program *program)
{
    program->group = false;
    agent_send(world, program->host, KIND_GONE, program->slot, 0, 0);
}

static void carry_on(struct world *world, struct program *program)
{
    program->stopped_until = 0;
    program->continued = world->now;
    note(world, "slot %d continues", program->slot);
    program_news(world, program);
}

static void fall_silent(struct world *world, const struct program *program)
{
    if (program->alive && program->epoch >= 0 && (program->hangs || program->stopped_until))
        mesh_break(world, program->epoch, mesh_rank(&world->meshes[program->epoch], program->slot), 100 * MS);
}

static void kill_process(struct world *world, struct program *program, enum membership_step step)
{
    if (!program->alive)
        return;
    if (step == MEMBERSHIP_TERM && program->stopped_until)
        plan(world, world->now + 5 * SECOND, KIND_KILL, program->slot, MEMBERSHIP_KILL, 0, 0);
    else
        program_end(world, program, step == MEMBERSHIP_TERM ? 143 : 137, true);
}

/* The agent of that connection has ended, and its processes follow. */
static void end_orphans(struct world *world, int host, int connection)
{
    for (int slot = 0; slot < world->program_count; slot++) {
        struct program *program = &world->programs[slot];
        if (program->host != host || program->connection != connection)
            continue;
        program_end(world, program, 137, false);
        program->group = false;
    }
}

/* ---- the loop ------------------------------------------------------------------------------------------ */

static void handle(struct world *world, const struct happening *happening)
{
    switch (happening->kind) {
    case KIND_TICK:
        if (world->tick_at == happening->time || world->tick_at <= world->now)
            launcher_tick(world);
        break;
    case KIND_DISCOVER:
        launcher_discover(world);
        break;
    case KIND_FAULT:
        scenario_fault(world, happening);
        break;
    case KIND_REST:
        scenario_rest(world);
        break;
    case KIND_TIMER:
        program_timer(world, happening);
        break;
    case KIND_CONTINUE:
        carry_on(world, &world->programs[happening->a]);
        break;
    case KIND_COLLECTIVE:
        program_collective(world, happening);
        break;
    case KIND_ERROR:
        program_error(world, happening);
        break;
    case KIND_SILENCE:
        fall_silent(world, &world->programs[happening->a]);
        break;
    case KIND_KILL:
        kill_process(world, &world->programs[happening->a], (enum membership_step)happening->b);
        break;
    case KIND_GROUP:
        end_group(world, &world->programs[happening->a]);
        break;
    case KIND_ORPHANS:
        end_orphans(world, happening->a, happening->b);
        break;
    case KIND_REPAIR:
        world->hosts[happening->a].up = true;
        break;
    case KIND_PREPARE:
    case KIND_START:
    case KIND_END:
    case KIND_EPOCH:
    case KIND_NOTICE:
        agent_receive(world, happening);
        break;
    default:
        launcher_receive(world, happening);
        break;
    }
}

bool world_run(uint64_t seed, bool verbose, struct tally *tally, uint64_t *digest)
{
    struct world *world = calloc(1, sizeof *world);
    struct happening happening;
    int happenings = 0;
    if (!world)
        abort();
    world->seed = seed;
    world->random = random_mix(seed + 1);
    world->verbose = verbose;
    world->tally = tally;
    world->tick_at = world->usable_since = INT64_MAX;
    world->durable = -1;
    scenario_init(world);
    world->membership = membership_new(&world->config);
    if (!world->membership)
        abort();
    plan(world, 0, KIND_DISCOVER, 0, 0, 0, 0);
    while (!world->violated && queue_pop(&world->queue, &happening)) {
        world->now = happening.time;
        handle(world, &happening);
        if (++happenings == HAPPENINGS_LIMIT)
            violation(world, "the job does not end");
    }
    if (!world->violated)
        check_end(world);
    tally->happenings += (uint64_t)happenings;
    *digest = world->digest;
    bool kept = !world->violated;
    for (int i = 0; i < world->mesh_count; i++) {
        free(world->meshes[i].ranks);
        free(world->meshes[i].records);
    }
    membership_free(world->membership);
    free(world->meshes);
    free(world->programs);
    free(world->queue.heap);
    free(world);
    return kept;
}
