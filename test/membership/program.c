/* program.c - the processes: a training program under the elastic wrapper, and the connections between ranks.
 */
#include "world.h"

#include <stdlib.h>

#define STALL_LIMIT   (60 * SECOND) /* for an operation that one rank does not submit */
#define OPENING_LIMIT (30 * SECOND) /* for all ranks of an epoch to have arrived */

uint64_t reference(int steps)
{
    uint64_t hash = 1;
    for (int step = 0; step < steps; step++)
        hash = random_mix(hash + (uint64_t)step);
    return hash;
}

/* A stopped process does everything when it continues. */
static bool postponed(struct world *world, const struct program *program, const struct happening *happening)
{
    if (!program->stopped_until)
        return false;
    if (program->stopped_until < FOREVER)
        plan(world, program->stopped_until, happening->kind, happening->a, happening->b, happening->c, 0);
    return true;
}

static void set_timer(struct world *world, struct program *program, int64_t time)
{
    plan(world, time, KIND_TIMER, program->slot, ++program->timer, 0, 0);
}

int mesh_rank(const struct mesh *mesh, int slot)
{
    for (int rank = 0; rank < mesh->size; rank++) {
        if (mesh->ranks[rank].slot == slot)
            return rank;
    }
    return -1;
}

/* ---- connections --------------------------------------------------------------------------------------- */

void mesh_break(struct world *world, int epoch, int rank, int64_t longest)
{
    struct mesh *mesh = &world->meshes[epoch];
    if (mesh->broken)
        return;
    mesh->broken = true;
    /* While the connections are opened, only the launcher knows that a rank will not come. */
    for (int i = 0; i < mesh->size && mesh->begun; i++)
        plan(world, later(world, longest), KIND_ERROR, mesh->ranks[i].slot, epoch, rank, 0);
}

static void submit(struct world *world, struct program *program, enum phase phase)
{
    struct mesh *mesh = &world->meshes[program->epoch];
    program->phase = phase;
    program->inside = true;
    if (mesh->broken) {
        plan(world, later(world, 10 * MS), KIND_ERROR, program->slot, program->epoch, program->lost_rank, 0);
        return;
    }
    if (phase == PHASE_CHECK && world->hosts[program->host].epoch == program->epoch)
        mesh->notices[mesh->number % 2] |= world->hosts[program->host].notice;
    if (++mesh->arrived < mesh->size)
        return;
    check_collective(world, mesh);
    mesh->arrived = 0;
    mesh->number++;
    mesh->notices[mesh->number % 2] = 0;
    for (int rank = 0; rank < mesh->size; rank++)
        plan(world, later(world, world->ambush ? 15 * MS : 5 * MS), KIND_COLLECTIVE, mesh->ranks[rank].slot,
             program->epoch, mesh->number, 0);
    if (world->ambush && phase == PHASE_STEP) {
        world->ambush = false;
        world->tally->ambushes++;
        plan(world, later(world, 3 * MS), KIND_KILL,
             mesh->ranks[random_below(&world->random, mesh->size)].slot, MEMBERSHIP_KILL, 0, 0);
    }
    world->tally->collectives++;
}

/* ---- epochs -------------------------------------------------------------------------------------------- */

static void ask(struct world *world, struct program *program, int after)
{
    program->phase = PHASE_ASKING;
    program->inside = false;
    program->timer++;
    program->after = after;
    program->answer = -1;
    agent_send(world, program->host, KIND_WAITS, program->slot, after,
               program->has_state | (program->lost_rank + 1) << 1);
    program_news(world, program);
}

static void leave(struct world *world, struct program *program, int lost)
{
    int epoch = program->epoch;
    mesh_break(world, epoch, mesh_rank(&world->meshes[epoch], program->slot), 15 * MS);
    program->lost_rank = lost;
    program->epoch = -1;
    ask(world, program, epoch);
}

static void enter(struct world *world, struct program *program, int epoch)
{
    struct mesh *mesh = &world->meshes[epoch];
    program->phase = PHASE_OPENING;
    program->epoch = epoch;
    program->failed = false;
    program->lost_rank = -1;
    set_timer(world, program, world->now + OPENING_LIMIT);
    if (++mesh->opened < mesh->size || mesh->broken)
        return;
    mesh->begun = true;
    for (int rank = 0; rank < mesh->size; rank++)
        plan(world, later(world, 20 * MS), KIND_COLLECTIVE, mesh->ranks[rank].slot, epoch, 0, 0);
}

/* The home answers an open question once, also that of a stopped process. */
static void answer(const struct world *world, struct program *program)
{
    const struct host *host = &world->hosts[program->host];
    if (program->phase != PHASE_ASKING || program->answer >= 0 || host->epoch <= program->after)
        return;
    if (!(host->notice & MEMBERSHIP_LOST) && mesh_rank(&world->meshes[host->epoch], program->slot) >= 0)
        program->answer = host->epoch;
}

void program_news(struct world *world, struct program *program)
{
    const struct host *host = &world->hosts[program->host];
    if (!program->alive)
        return;
    answer(world, program);
    if (program->stopped_until)
        return;
    if (program->phase == PHASE_ASKING && program->answer >= 0)
        enter(world, program, program->answer);
    else if (program->phase == PHASE_ASKING && program->out)
        program_end(world, program, 0, true);
    if (program->phase == PHASE_OPENING && (host->epoch > program->epoch || host->notice & MEMBERSHIP_LOST))
        leave(world, program, -1);
}

/* ---- the training -------------------------------------------------------------------------------------- */

static void compute(struct world *world, struct program *program)
{
    program->phase = PHASE_STEP;
    program->inside = false;
    set_timer(world, program, world->now + 10 * MS + random_below(&world->random, 20 * MS));
}

static void commit(struct world *world, struct program *program)
{
    struct mesh *mesh = &world->meshes[program->epoch];
    program->copy = program->live;
    program->version++;
    if (program->version > mesh->committed) {
        mesh->committed = program->version;
        mesh->commits = 0;
    }
    if (++mesh->commits == mesh->size && program->version > world->durable)
        world->durable = program->version;
    world->tally->commits++;
}

static void agree(struct world *world, struct program *program)
{
    struct mesh *mesh = &world->meshes[program->epoch];
    int rank = mesh_rank(mesh, program->slot);
    mesh->records[rank] = (struct record){.has_state = program->has_state,
                                          .clean = program->live.step == program->copy.step,
                                          .version = program->version};
    submit(world, program, PHASE_AGREEING);
}

/* Before there is a state, that of rank 0 counts. */
static void count_first_rank(struct mesh *mesh)
{
    bool any = false;
    for (int rank = 0; rank < mesh->size; rank++)
        any = any || mesh->records[rank].has_state;
    mesh->records[0].has_state |= !any;
}

static void receive(struct world *world, struct program *program)
{
    struct mesh *mesh = &world->meshes[program->epoch];
    count_first_rank(mesh);
    const struct record *own = &mesh->records[mesh_rank(mesh, program->slot)];
    int version = agreement_version(mesh->records, mesh->size);
    int source = agreement_source(mesh->records, mesh->size, version);
    if (source < 0) {
        violation(world, "epoch %d has nobody with a state", program->epoch);
        return;
    }
    switch (agreement_recovery(own, version)) {
    case RECOVERY_KEEP:
        world->tally->kept++;
        break;
    case RECOVERY_RESTORE:
        world->tally->restored++;
        program->live = program->copy;
        break;
    case RECOVERY_RECEIVE:
        world->tally->received++;
        program->live = program->copy = world->programs[mesh->ranks[source].slot].copy;
        program->version = version;
    }
    submit(world, program, PHASE_RECEIVING);
}

static void take_step(struct world *world, struct program *program)
{
    program->live.hash = random_mix(program->live.hash + (uint64_t)program->live.step);
    program->live.step++;
    world->tally->steps++;
    if (program->live.step % world->commit_every && program->live.step < world->steps) {
        compute(world, program);
        return;
    }
    commit(world, program);
    submit(world, program, PHASE_CHECK);
}

static void end_function(struct world *world, struct program *program)
{
    if (program->live.hash != reference(world->steps))
        violation(world, "slot %d ends with another model than one without faults", program->slot);
    world->meshes[program->epoch].done++;
    program->phase = PHASE_RETURNED;
    program->returned = true;
    agent_send(world, program->host, KIND_DONE, program->slot, 0, 0);
    set_timer(world, program, later(world, SECOND));
}

static void train(struct world *world, struct program *program)
{
    if (program->live.step == world->steps)
        end_function(world, program);
    else
        compute(world, program);
}

static void end_check(struct world *world, struct program *program, int number)
{
    const struct mesh *mesh = &world->meshes[program->epoch];
    if (mesh->notices[(number - 1) % 2]) {
        world->tally->interrupts++;
        leave(world, program, -1);
    } else {
        check_leaving(world, program);
        train(world, program);
    }
}

void program_collective(struct world *world, const struct happening *happening)
{
    struct program *program = &world->programs[happening->a];
    if (!program->alive || program->epoch != happening->b)
        return;
    if (postponed(world, program, happening))
        return;
    program->timer++;
    program->inside = false;
    switch (program->phase) {
    case PHASE_OPENING:
        agree(world, program);
        break;
    case PHASE_AGREEING:
        receive(world, program);
        break;
    case PHASE_RECEIVING:
        program->has_state = world->synced = true;
        check_synced(world, &world->meshes[program->epoch], program);
        train(world, program);
        break;
    case PHASE_STEP:
        take_step(world, program);
        break;
    case PHASE_CHECK:
        end_check(world, program, happening->c);
        break;
    default:
        break;
    }
}

void program_error(struct world *world, const struct happening *happening)
{
    struct program *program = &world->programs[happening->a];
    if (!program->alive || program->epoch != happening->b || program->phase == PHASE_RETURNED)
        return;
    if (postponed(world, program, happening))
        return;
    world->tally->errors++;
    program->lost_rank = happening->c;
    if (program->inside || program->phase == PHASE_OPENING)
        leave(world, program, happening->c);
}

/* ---- processes ----------------------------------------------------------------------------------------- */

struct program *program_add(struct world *world, int slot, int host, int seat, bool newcomer)
{
    world->programs = realloc(world->programs, ((size_t)slot + 1) * sizeof *world->programs);
    if (!world->programs)
        abort();
    for (; world->program_count <= slot; world->program_count++)
        world->programs[world->program_count] = (struct program){.slot = world->program_count};
    struct program *program = &world->programs[slot];
    *program = (struct program){.slot = slot,
                                .host = host,
                                .seat = seat,
                                .connection = world->hosts[host].connection,
                                .newcomer = newcomer,
                                .epoch = -1,
                                .lost_rank = -1,
                                .live = {.hash = 1},
                                .copy = {.hash = 1},
                                .dies_at = -1};
    scenario_program(world, program);
    return program;
}

void program_start(struct world *world, struct program *program)
{
    program->alive = program->group = true;
    set_timer(world, program, world->now + program->load_time * MS);
}

void program_end(struct world *world, struct program *program, int exit_code, bool reported)
{
    if (!program->alive)
        return;
    program->alive = false;
    program->phase = PHASE_ENDED;
    program->exit_code = exit_code;
    note(world, "slot %d ends with %d", program->slot, exit_code);
    if (program->epoch >= 0)
        mesh_break(world, program->epoch, mesh_rank(&world->meshes[program->epoch], program->slot), 15 * MS);
    program->epoch = -1;
    program->group = reported;
    if (!reported)
        return;
    agent_send(world, program->host, KIND_ENDED, program->slot, exit_code, 0);
    plan(world, random_chance(&world->random, 80) ? world->now : later(world, 3 * SECOND), KIND_GROUP,
         program->slot, 0, 0, 0);
}

void program_timer(struct world *world, const struct happening *happening)
{
    struct program *program = &world->programs[happening->a];
    if (!program->alive || program->timer != happening->b)
        return;
    if (postponed(world, program, happening))
        return;
    if (program->hangs && program->phase != PHASE_RETURNED) {
        plan(world, world->now + STALL_LIMIT, KIND_SILENCE, program->slot, 0, 0, 0);
        return;
    }
    if (program->dies_at == (int)program->phase) {
        world->failure = true;
        world->tally->raised++;
        program_end(world, program, 1, true);
        return;
    }
    if (program->phase == PHASE_LOADING && world->plain) {
        world->tally->plain++;
        program_end(world, program, 0, true);
    } else if (program->phase == PHASE_LOADING) {
        world->tally->newcomers += program->newcomer;
        ask(world, program, -1);
    } else if (program->phase == PHASE_OPENING) {
        world->tally->late_openings++;
        leave(world, program, -1);
    } else if (program->phase == PHASE_RETURNED) {
        program_end(world, program, 0, true);
    } else {
        submit(world, program, program->phase);
    }
}
