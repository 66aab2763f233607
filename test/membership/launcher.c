/* launcher.c - the launcher's connections, the agents at their other ends, and what the launcher does about
 * the actions of the state machine. */
#include "world.h"

#include <stdlib.h>

#define GRACE (5 * SECOND)

/* ---- agents -------------------------------------------------------------------------------------------- */

void agent_send(struct world *world, int number, enum kind kind, int slot, int c, int d)
{
    struct host *host = &world->hosts[number];
    int64_t time = later(world, 2 * MS);
    if (!host->agent)
        return;
    host->last_up = time > host->last_up ? time : host->last_up;
    plan(world, host->last_up, kind, number | host->connection << 8, slot, c, d);
}

static void send_down(struct world *world, int number, enum kind kind, int c, int d)
{
    struct host *host = &world->hosts[number];
    int64_t time = later(world, 2 * MS);
    host->last_down = time > host->last_down ? time : host->last_down;
    plan(world, host->last_down, kind, number, host->connection, c, d);
}

static void notify_all(struct world *world, int host)
{
    for (int slot = 0; slot < world->program_count; slot++) {
        if (world->programs[slot].host == host)
            program_news(world, &world->programs[slot]);
    }
}

static void start_process(struct world *world, int number, int slot)
{
    struct program *program = &world->programs[slot];
    if (program->out)
        return;
    for (int i = 0; i < world->program_count; i++) {
        const struct program *other = &world->programs[i];
        if (i != slot && other->group && other->host == program->host && other->seat == program->seat)
            violation(world, "slots %d and %d live at one seat", i, slot);
    }
    if (random_chance(&world->random, world->faults ? 2 : 0)) {
        world->tally->not_started++;
        world->failure = true;
        agent_send(world, number, KIND_NOT_STARTED, slot, 127, 0);
        return;
    }
    program_start(world, program);
}

static void end_process(struct world *world, int slot, enum membership_step step)
{
    struct program *program = &world->programs[slot];
    program->out = true;
    program_news(world, program);
    if (!program->alive)
        return;
    if (step == MEMBERSHIP_KILL || (step == MEMBERSHIP_TERM && !program->stopped_until))
        plan(world, later(world, 10 * MS), KIND_KILL, slot, MEMBERSHIP_KILL, 0, 0);
    else
        plan(world, world->now + GRACE, KIND_KILL, slot, step + 1, 0, 0);
}

void agent_receive(struct world *world, const struct happening *happening)
{
    struct host *host = &world->hosts[happening->a];
    if (happening->kind == KIND_PREPARE) {
        bool prepared = host->up && host->can_prepare;
        if (happening->b != host->connection)
            return;
        host->agent = true;
        host->epoch = -1;
        host->notice = 0;
        plan(world, later(world, prepared ? 2 * SECOND : 20 * SECOND),
             prepared ? KIND_PREPARED : KIND_UNPREPARED, happening->a | host->connection << 8, 0, 0, 0);
        host->last_up = world->now + 20 * SECOND;
        return;
    }
    if (!host->agent || happening->b != host->connection)
        return;
    switch (happening->kind) {
    case KIND_START:
        start_process(world, happening->a, happening->c);
        break;
    case KIND_END:
        end_process(world, happening->c, (enum membership_step)happening->d);
        break;
    case KIND_EPOCH:
        host->epoch = happening->c;
        host->notice = 0;
        notify_all(world, happening->a);
        break;
    default: /* KIND_NOTICE */
        if (happening->c == host->epoch)
            host->notice = (unsigned)happening->d;
        notify_all(world, happening->a);
        break;
    }
}

void agent_end(struct world *world, int number)
{
    struct host *host = &world->hosts[number];
    if (!host->agent)
        return;
    host->agent = false;
    world->failure = true;
    plan(world, later(world, 200 * MS), KIND_LOST, number, host->connection, 0, 0);
    plan(world, later(world, 1900 * MS), KIND_ORPHANS, number, host->connection, 0, 0);
}

void host_crash(struct world *world, int number, bool silent)
{
    struct host *host = &world->hosts[number];
    if (!host->up)
        return;
    host->up = false;
    world->failure = true;
    plan(world, later(world, 60 * SECOND), KIND_REPAIR, number, 0, 0, 0);
    if (host->agent)
        plan(world, silent ? world->now + 10 * SECOND : later(world, 200 * MS), KIND_LOST, number,
             host->connection, silent, 0);
    host->agent = false;
    for (int slot = 0; slot < world->program_count; slot++) {
        struct program *program = &world->programs[slot];
        int epoch = program->epoch;
        if (program->host != number || !program->alive)
            continue;
        program->epoch = -1;
        program_end(world, program, 137, false);
        for (int rank = 0; epoch >= 0 && rank < world->meshes[epoch].size; rank++) {
            if (world->meshes[epoch].ranks[rank].slot == slot)
                mesh_break(world, epoch, rank, silent ? 10 * SECOND : 15 * MS);
        }
    }
}

/* ---- the launcher -------------------------------------------------------------------------------------- */

static void begin_epoch(struct world *world)
{
    int epoch, size;
    const struct membership_rank *ranks = membership_ranks(world->membership, &epoch, &size);
    struct mesh *mesh;
    bool known[HOST_LIMIT] = {false};
    check_epoch(world, ranks, epoch, size);
    world->meshes = realloc(world->meshes, ((size_t)epoch + 1) * sizeof *world->meshes);
    if (!world->meshes)
        abort();
    world->mesh_count = epoch + 1;
    mesh = &world->meshes[epoch];
    *mesh = (struct mesh){.size = size,
                          .ranks = malloc((size_t)size * sizeof *mesh->ranks),
                          .records = calloc((size_t)size, sizeof *mesh->records),
                          .version = -1,
                          .committed = -1};
    world->tally->epochs++;
    world->cause = false;
    world->began = world->now;
    for (int rank = 0; rank < size; rank++) {
        mesh->ranks[rank] = ranks[rank];
        if (epoch > 0)
            world->programs[ranks[rank].slot].waits = false;
        if (!known[ranks[rank].host])
            send_down(world, ranks[rank].host, KIND_EPOCH, epoch, 0);
        known[ranks[rank].host] = true;
    }
    scenario_epoch(world);
    for (int i = 0; i < world->cut_count; i++)
        plan(world, later(world, SECOND), KIND_FAULT, i + 1, epoch, 0, 0);
}

static void give_notice(struct world *world, const struct membership_action *action)
{
    struct mesh *mesh = &world->meshes[action->epoch];
    bool known[HOST_LIMIT] = {false};
    check_notice(world, action);
    mesh->notice = action->change;
    world->tally->notices_more += (action->change & MEMBERSHIP_MORE) != 0;
    world->tally->notices_less += (action->change & MEMBERSHIP_LESS) != 0;
    world->tally->notices_lost += (action->change & MEMBERSHIP_LOST) != 0;
    for (int rank = 0; rank < mesh->size; rank++) {
        if (!known[mesh->ranks[rank].host])
            send_down(world, mesh->ranks[rank].host, KIND_NOTICE, action->epoch, (int)action->change);
        known[mesh->ranks[rank].host] = true;
    }
}

static void end_slot(struct world *world, int slot, const struct membership_action *action)
{
    world->programs[slot].dismissed = true;
    send_down(world, world->programs[slot].host, KIND_END, slot, (int)action->step);
}

static void finish(struct world *world, const struct membership_action *action)
{
    if (world->finished)
        violation(world, "the job ends twice");
    world->finished = true;
    check_finish(world, action->exit_code);
    world->exit_code = action->exit_code;
    note(world, "finish %d: %s", action->exit_code, action->text);
    for (int slot = 0; slot < world->program_count; slot++)
        end_slot(world, slot,
                 &(struct membership_action){.step = action->exit_code ? MEMBERSHIP_TERM : action->step});
}

static void act(struct world *world)
{
    static const char *const whys[] = {"removed", "host out", "asked to leave", "hung", "cut off", "over"};
    struct membership_action action;
    check_seats(world);
    while (membership_next(world->membership, &action) && !world->violated) {
        switch (action.kind) {
        case MEMBERSHIP_PREPARE:
            world->hosts[action.host].connection++;
            note(world, "prepare host %d", action.host);
            send_down(world, action.host, KIND_PREPARE, 0, 0);
            break;
        case MEMBERSHIP_RELEASE:
            note(world, "release host %d", action.host);
            world->tally->released++;
            world->hosts[action.host].agent = world->hosts[action.host].prepared = false;
            world->hosts[action.host].connection++;
            break;
        case MEMBERSHIP_EPOCH:
            begin_epoch(world);
            break;
        case MEMBERSHIP_START:
            check_start(world, &action);
            program_add(world, action.slot, action.host, action.seat,
                        mesh_rank(&world->meshes[world->mesh_count - 1], action.slot) < 0);
            send_down(world, action.host, KIND_START, action.slot, 0);
            break;
        case MEMBERSHIP_END:
            note(world, "end slot %d: %s", action.slot, whys[action.why]);
            check_dismissal(world, &action);
            world->tally->hung += action.why == MEMBERSHIP_HUNG;
            world->tally->cut_off += action.why == MEMBERSHIP_CUT_OFF;
            world->tally->hosts_out += action.why == MEMBERSHIP_HOST_OUT;
            world->tally->removed += action.why == MEMBERSHIP_REMOVED;
            end_slot(world, action.slot, &action);
            break;
        case MEMBERSHIP_NOTICE:
            note(world, "notice %d: %u", action.epoch, action.change);
            give_notice(world, &action);
            break;
        case MEMBERSHIP_SAY:
            world->tally->said++;
            break;
        case MEMBERSHIP_FINISH:
            finish(world, &action);
        }
    }
    check_left_out(world);
    int64_t deadline = membership_deadline(world->membership);
    if (deadline < world->tick_at || world->tick_at <= world->now) {
        world->tick_at = deadline;
        if (deadline != INT64_MAX)
            plan(world, deadline > world->now ? deadline : world->now, KIND_TICK, 0, 0, 0, 0);
    }
}

void launcher_tick(struct world *world)
{
    world->tick_at = INT64_MAX;
    membership_tick(world->membership, world->now);
    act(world);
}

void launcher_discover(struct world *world)
{
    struct membership_host hosts[HOST_LIMIT];
    int count = 0;
    bool first = membership_hosts(world->membership) == 0; /* numbers are then the same there and here */
    for (int i = 0; i < world->host_count; i++) {
        if (first || world->hosts[i].offered > 0)
            hosts[count++] = (struct membership_host){world->hosts[i].name, world->hosts[i].offered};
    }
    for (int i = 0; i < world->host_count; i++) {
        world->hosts[i].named = world->hosts[i].offered;
        world->hosts[i].left &= (1U << world->hosts[i].offered) - 1;
    }
    membership_discovered(world->membership, world->now, hosts, count);
    act(world);
}

static void lose_host(struct world *world, int number, bool silent)
{
    struct host *host = &world->hosts[number];
    host->connection++;
    if (host->prepared) {
        host->lost_at = world->now;
        host->losses++;
    }
    host->prepared = false;
    for (int slot = 0; slot < world->program_count; slot++) {
        struct program *program = &world->programs[slot];
        if (program->host != number || program->ended)
            continue;
        program->ended = true;
        if (mesh_rank(&world->meshes[world->mesh_count - 1], slot) >= 0 && !program->dismissed &&
            !program->returned) {
            world->last_loss = world->now;
            world->cause = true;
        }
    }
    world->tally->lost_hosts++;
    membership_host_lost(world->membership, world->now, number, silent);
}

static void on_waits(struct world *world, const struct happening *happening)
{
    struct membership_wait wait = {
        .after = happening->c, .holds_state = happening->d & 1, .lost_rank = (happening->d >> 1) - 1};
    const struct mesh *mesh = &world->meshes[world->mesh_count - 1];
    bool newest = wait.after == world->mesh_count - 1;
    world->cause = world->cause || newest;
    world->entered = true;
    world->early = false;
    if (newest || mesh_rank(mesh, happening->b) < 0 || mesh->notice & MEMBERSHIP_LOST)
        world->programs[happening->b].waits = true;
    note(world, "slot %d waits after %d", happening->b, wait.after);
    membership_waits(world->membership, world->now, happening->b, &wait);
}

static void on_end(struct world *world, int slot, int exit_code)
{
    if (!world->programs[slot].dismissed && !world->programs[slot].returned &&
        mesh_rank(&world->meshes[world->mesh_count - 1], slot) >= 0) {
        world->last_loss = world->now;
        world->cause = true;
        if (exit_code) {
            world->hosts[world->programs[slot].host].failed_at = world->now;
        } else if (!world->entered) {
            world->early = true;
            world->tally->early++;
        }
    }
    world->programs[slot].ended = true;
    world->programs[slot].known_code = exit_code;
    note(world, "slot %d ended", slot);
    world->failure = world->failure || exit_code;
    membership_ended(world->membership, world->now, slot, exit_code, exit_code > 128 ? exit_code - 128 : 0);
}

static void on_leaves(struct world *world, const struct happening *happening, int number)
{
    bool all = happening->kind == KIND_HOST_LEAVES;
    struct host *host = &world->hosts[number];
    for (int slot = 0; slot < world->program_count; slot++) {
        struct program *program = &world->programs[slot];
        bool is_one = all ? program->host == number : slot == happening->b;
        if (!is_one || program->ended || program->dismissed || program->leaves)
            continue;
        program->leaves = world->now;
        host->left |= 1U << program->seat & ((1U << host->offered) - 1);
    }
    if (all)
        host->left |= (1U << host->offered) - 1;
    note(world, "slot %d leaves", happening->b);
    if (all)
        membership_host_leaves(world->membership, world->now, number);
    else
        membership_leaves(world->membership, world->now, happening->b);
}

void launcher_receive(struct world *world, const struct happening *happening)
{
    int number = happening->kind == KIND_LOST ? happening->a : happening->a & 255;
    int connection = happening->kind == KIND_LOST ? happening->b : happening->a >> 8;
    struct membership *membership = world->membership;
    if (connection != world->hosts[number].connection)
        return;
    switch (happening->kind) {
    case KIND_LOST:
        lose_host(world, number, happening->c);
        break;
    case KIND_PREPARED:
        if (!world->hosts[number].agent)
            return;
        world->hosts[number].last_up = world->now;
        world->hosts[number].prepared = true;
        membership_host_prepared(membership, world->now, number);
        break;
    case KIND_UNPREPARED:
        world->tally->unprepared++;
        world->hosts[number].agent = false;
        membership_host_failed(membership, world->now, number);
        break;
    case KIND_NOT_STARTED:
        world->programs[happening->b].ended = true;
        if (mesh_rank(&world->meshes[world->mesh_count - 1], happening->b) >= 0) {
            world->last_loss = world->now;
            world->hosts[number].failed_at = world->now;
        }
        world->cause = true;
        membership_not_started(membership, world->now, happening->b, happening->c);
        break;
    case KIND_WAITS:
        on_waits(world, happening);
        break;
    case KIND_DONE:
        world->tally->done++;
        membership_done(membership, world->now, happening->b);
        break;
    case KIND_LEAVES:
    case KIND_HOST_LEAVES:
        on_leaves(world, happening, number);
        break;
    case KIND_ENDED:
        on_end(world, happening->b, happening->c);
        break;
    default: /* KIND_GONE */
        membership_gone(membership, world->now, happening->b);
        break;
    }
    act(world);
}
