/* scenario.c - what a seed is: hosts, settings, and faults. */
#include "world.h"

#include <stdio.h>

#define FAULT_TIME (15 * SECOND)

static int64_t below(struct world *world, int64_t n)
{
    return random_below(&world->random, n);
}

static bool chance(struct world *world, int percent)
{
    return random_chance(&world->random, percent);
}

static void init_hosts(struct world *world)
{
    bool large = chance(world, 2);
    world->host_count = 1 + (int)below(world, large ? HOST_LIMIT : 5);
    for (int i = 0; i < world->host_count; i++) {
        struct host *host = &world->hosts[i];
        snprintf(host->name, sizeof host->name, "h%d", i);
        host->slots = 1 + (int)below(world, large ? 8 : 3);
        host->offered = chance(world, 80) ? host->slots : 0;
        host->up = host->can_prepare = true;
        host->epoch = -1;
    }
}

void scenario_init(struct world *world)
{
    int seats = 0;
    init_hosts(world);
    for (int i = 0; i < world->host_count; i++)
        seats += world->hosts[i].slots;
    struct membership_config *config = &world->config;
    config->min = 1 + (int)below(world, chance(world, 50) ? 1 : seats);
    config->start = config->min + (int)below(world, seats - config->min + 1);
    config->max = config->start + (chance(world, 50) ? seats : (int)below(world, 3));
    config->prepare = 5 * SECOND;
    config->settle = 50 * MS;
    config->rejoin = 30 * SECOND;
    config->silent = 5 * SECOND;
    config->gather = 10 * SECOND;
    config->timeout = 600 * SECOND;
    config->reset_limit = chance(world, 10) ? (int)below(world, 4) : -1;
    config->restart = chance(world, 30);
    config->restarts = (int)below(world, 4);
    if (chance(world, 60)) {
        config->pause[0] = SECOND + below(world, 10 * SECOND);
        config->pause[1] = config->pause[0] + below(world, 100 * SECOND);
    }
    config->spares = chance(world, 30) ? (int)below(world, 4) : 0;
    config->seed = random_next(&world->random);
    config->grow_now = config->seed % 4 == 0; /* Horovod's own rules */
    config->drop_last = config->seed % 16 < 2;
    world->plain = config->seed % 32 == 5;
    world->hosts[world->host_count - 1].can_prepare = config->seed % 8 != 6;
    world->steps = 20 + (int)below(world, 300);
    world->commit_every = 1 + (int)below(world, 20);
    world->faults = chance(world, 10) ? 0 : 1 + (int)below(world, 8);
    world->failure = config->reset_limit >= 0;
    for (int i = 0; i < world->faults; i++)
        plan(world, below(world, FAULT_TIME), KIND_FAULT, 0, 0, 0, 0);
    plan(world, FAULT_TIME, KIND_REST, 0, 0, 0, 0);
}

void scenario_program(struct world *world, struct program *program)
{
    program->load_time = (int)below(world, chance(world, 10) ? 40000 : 3000);
    if (!world->faults)
        return;
    if (chance(world, 3))
        program->dies_at = (int[]){PHASE_LOADING, PHASE_STEP, PHASE_RETURNED}[below(world, 3)];
    program->hangs = chance(world, 1);
    if (program->hangs)
        world->failure = true;
}

/* ---- faults -------------------------------------------------------------------------------------------- */

static struct program *draw_program(struct world *world)
{
    int living = 0;
    for (int i = 0; i < world->program_count; i++)
        living += world->programs[i].alive;
    int64_t chosen = below(world, living);
    for (int i = 0; i < world->program_count; i++) {
        if (world->programs[i].alive && chosen-- == 0)
            return &world->programs[i];
    }
    return NULL;
}

static void kill_host_ranks(struct world *world, int host)
{
    for (int i = 0; i < world->program_count; i++) {
        if (world->programs[i].alive && world->programs[i].host == host)
            program_end(world, &world->programs[i], 137, true);
    }
}

static void stop(struct world *world, struct program *program)
{
    if (program->stopped_until)
        return;
    world->tally->stopped++;
    note(world, "slot %d is stopped", program->slot);
    program->stopped_until = chance(world, 30) ? FOREVER : world->now + below(world, 30 * SECOND) + 1;
    if (program->stopped_until < FOREVER)
        plan(world, program->stopped_until, KIND_CONTINUE, program->slot, 0, 0, 0);
    plan(world, world->now + 10 * SECOND, KIND_SILENCE, program->slot, 0, 0, 0);
}

static void cut(struct world *world, const struct program *one)
{
    if (one->epoch < 0 || world->cut_count == CUT_LIMIT)
        return;
    const struct mesh *mesh = &world->meshes[one->epoch];
    int other = mesh->ranks[below(world, mesh->size)].slot;
    if (other == one->slot)
        return;
    world->tally->cuts++;
    world->cuts[world->cut_count][0] = one->slot;
    world->cuts[world->cut_count++][1] = other;
    plan(world, world->now, KIND_FAULT, world->cut_count, one->epoch, 0, 0);
}

static void change_hosts(struct world *world)
{
    struct host *host = &world->hosts[below(world, world->host_count)];
    switch (below(world, 5)) {
    case 0: /* removed */
        host->offered = 0;
        world->tally->hosts_removed++;
        break;
    case 1: /* fewer slots, or as many */
        host->offered = (int)below(world, host->slots + 1);
        break;
    case 2:
        host->offered = host->slots;
        world->tally->hosts_added++;
        break;
    case 3: /* all hosts are exchanged */
        for (int i = 0; i < world->host_count; i++)
            world->hosts[i].offered = world->hosts[i].offered ? 0 : world->hosts[i].slots;
        world->tally->exchanges++;
        break;
    default: /* an empty answer */
        for (int i = 0; i < world->host_count; i++)
            world->hosts[i].offered = 0;
        world->tally->empty_answers++;
    }
    world->failure = true; /* too few may be left */
    plan(world, world->now, KIND_DISCOVER, 0, 0, 0, 0);
    if (chance(world, 50))
        plan(world, later(world, 3 * SECOND), KIND_FAULT, -1, (int)(host - world->hosts), 0, 0);
}

/* A process, or all of a host, gets SIGTERM. */
static void request_leave(struct world *world, const struct program *program)
{
    bool host = chance(world, 30);
    world->tally->asked_to_leave += !host;
    world->tally->hosts_asked_to_leave += host;
    note(world, host ? "host of slot %d is asked to leave" : "slot %d is asked to leave", program->slot);
    agent_send(world, program->host, host ? KIND_HOST_LEAVES : KIND_LEAVES, program->slot, 0, 0);
}

static void harm(struct world *world, struct program *program)
{
    switch (below(world, 8)) {
    case 0:
        world->tally->killed++;
        program_end(world, program, 137, true);
        break;
    case 1:
        world->tally->killed_together++;
        kill_host_ranks(world, program->host);
        break;
    case 2:
        stop(world, program);
        break;
    case 3:
        world->tally->hangs++;
        program->hangs = true;
        break;
    case 4:
        cut(world, program);
        break;
    case 5:
        if (program->phase != PHASE_RETURNED) {
            world->tally->left++;
            program_end(world, program, 0, true);
        }
        break;
    case 6:
        request_leave(world, program);
        break;
    default:
        if (program->epoch >= 0 && world->meshes[program->epoch].begun &&
            world->meshes[program->epoch].size > 1) {
            world->tally->broken_paths++;
            mesh_break(world, program->epoch, (int)below(world, world->meshes[program->epoch].size), 15 * MS);
        }
    }
}

void scenario_fault(struct world *world, const struct happening *happening)
{
    struct program *program = draw_program(world);
    int host = (int)below(world, world->host_count);
    if (happening->a > 0) {
        if (happening->a <= world->cut_count && happening->b == world->mesh_count - 1) {
            const struct mesh *mesh = &world->meshes[happening->b];
            int rank = mesh_rank(mesh, world->cuts[happening->a - 1][0]);
            if (mesh->begun && rank >= 0 && mesh_rank(mesh, world->cuts[happening->a - 1][1]) >= 0)
                mesh_break(world, happening->b, rank, 15 * MS);
        }
        return;
    }
    if (happening->a < 0) {
        world->hosts[happening->b].offered = world->hosts[happening->b].slots;
        plan(world, world->now, KIND_DISCOVER, 0, 0, 0, 0);
        return;
    }
    world->failure = true;
    note(world, "fault");
    switch (below(world, 12)) {
    case 0:
        world->tally->crashed++;
        host_crash(world, host, chance(world, 50));
        break;
    case 1:
        world->tally->agents_ended++;
        agent_end(world, host);
        break;
    case 2:
    case 3:
        change_hosts(world);
        break;
    case 4:
        world->hosts[host].can_prepare = false;
        break;
    case 5:
    case 6:
        world->ambush = true;
        break;
    default:
        if (program)
            harm(world, program);
    }
}

/* Now and then all that hold the state are killed before the newcomers have it. */
void scenario_epoch(struct world *world)
{
    const struct mesh *mesh = &world->meshes[world->mesh_count - 1];
    if (!world->faults || world->mesh_count == 1 || !mesh->ranks[mesh->size - 1].newcomer ||
        !chance(world, 10))
        return;
    world->failure = true;
    world->tally->all_holders++;
    for (int rank = 0; rank < mesh->size; rank++) {
        if (!mesh->ranks[rank].newcomer)
            plan(world, later(world, 30 * MS), KIND_KILL, mesh->ranks[rank].slot, MEMBERSHIP_KILL, 0, 0);
    }
}

void scenario_rest(struct world *world)
{
    world->faults = 0;
    world->cut_count = 0;
    for (int i = 0; i < world->host_count; i++) {
        world->hosts[i].can_prepare = true;
        world->hosts[i].offered = world->hosts[i].slots;
    }
    plan(world, world->now, KIND_DISCOVER, 0, 0, 0, 0);
}
