/* check.c - what must hold, whatever happens. */
#include "world.h"

static bool is_offered(const struct world *world, const struct program *program)
{
    return program->seat < world->hosts[program->host].offered && !program->leaves;
}

/* ---- the first epoch -----------------------------------------------------------------------------------
 */

static int count_needed(const struct world *world)
{
    int named = 0;
    for (int i = 0; i < world->host_count; i++)
        named += world->hosts[i].named;
    return named < world->config.start ? world->config.start : world->config.min;
}

void check_seats(struct world *world)
{
    world->usable = 0;
    for (int i = 0; i < world->host_count; i++) {
        const struct host *host = &world->hosts[i];
        for (int seat = 0; seat < host->named && host->prepared; seat++)
            world->usable += !(host->left >> seat & 1);
    }
    if (world->usable < count_needed(world))
        world->usable_since = INT64_MAX;
    else if (world->usable_since == INT64_MAX)
        world->usable_since = world->now;
}

/* It has all seats that can be used. Other hosts are waited for if they are needed, and not for long. */
static void check_first(struct world *world, int size)
{
    const struct membership_config *config = &world->config;
    int64_t end = world->usable_since < INT64_MAX ? world->usable_since + config->prepare : 0;
    world->tally->short_starts += size < config->start;
    if (size != (world->usable < config->max ? world->usable : config->max) || size < count_needed(world))
        violation(world, "the first epoch has %d ranks of %d seats", size, world->usable);
    if (size < config->start && world->now < end)
        violation(world, "the first epoch does not wait for hosts that are being prepared");
    if (world->now > end)
        violation(world, "the first epoch waits too long for hosts that are being prepared");
}

/* ---- epochs -------------------------------------------------------------------------------------------- */

static void check_rank(struct world *world, const struct membership_rank *ranks, int epoch, int rank)
{
    const struct program *program = &world->programs[ranks[rank].slot];
    const struct mesh *before = &world->meshes[epoch - 1];
    int last = rank ? mesh_rank(before, ranks[rank - 1].slot) : 0;
    int own = mesh_rank(before, ranks[rank].slot);
    if (!program->waits)
        violation(world, "epoch %d begins before slot %d waits", epoch, program->slot);
    if (program->dismissed || program->ended)
        violation(world, "epoch %d has slot %d, which was to end", epoch, program->slot);
    if (own >= 0 && (last < 0 || own < last))
        violation(world, "slot %d is behind a slot that has been a member for less long", program->slot);
    if (ranks[rank].newcomer != (own < 0))
        violation(world, "slot %d is taken for what it is not", program->slot);
    for (int i = 0; i < rank; i++) {
        if (ranks[i].slot == ranks[rank].slot ||
            (ranks[i].host == ranks[rank].host && ranks[i].seat == ranks[rank].seat))
            violation(world, "epoch %d has slot %d or its seat twice", epoch, program->slot);
    }
}

/* Members whose seats are no longer offered stay only if it can't be without them. */
static void check_kept(struct world *world, const struct membership_rank *ranks, int epoch, int size)
{
    int kept = 0, holders = 0, all = 0;
    for (int rank = 0; rank < size; rank++) {
        const struct program *program = &world->programs[ranks[rank].slot];
        kept += !is_offered(world, program);
        holders += is_offered(world, program) && program->has_state && !ranks[rank].newcomer;
        all += program->has_state;
    }
    world->tally->kept_members += (uint64_t)kept;
    if (!all && world->durable >= 0)
        violation(world, "nobody in epoch %d holds the state", epoch);
    if (kept && holders && size - kept >= world->config.min)
        violation(world, "epoch %d has members whose seats are not offered", epoch);
}

/* Ready newcomers are used at once, if there is room. */
static void check_newcomers(struct world *world, const struct membership_rank *ranks, int epoch, int size)
{
    const struct mesh *before = &world->meshes[epoch - 1];
    bool newcomers = size > 0 && ranks[size - 1].newcomer;
    world->tally->spares_used += newcomers && size == before->size && before->notice == MEMBERSHIP_LOST;
    for (int slot = 0; slot < world->program_count && size < world->config.max && !before->done; slot++) {
        const struct program *program = &world->programs[slot];
        bool ready = program->waits && !program->dismissed && !program->ended && is_offered(world, program);
        bool used = mesh_rank(before, slot) >= 0;
        for (int rank = 0; rank < size; rank++)
            used = used || ranks[rank].slot == slot;
        if (ready && !used)
            violation(world, "epoch %d has room, but slot %d waits on", epoch, slot);
    }
}

void check_epoch(struct world *world, const struct membership_rank *ranks, int epoch, int size)
{
    if (epoch != world->mesh_count)
        violation(world, "epoch %d follows epoch %d", epoch, world->mesh_count - 1);
    note(world, "epoch %d of %d ranks", epoch, size);
    if (epoch == 0) {
        check_first(world, size);
        return;
    }
    const struct mesh *before = &world->meshes[epoch - 1];
    if (size > world->config.max || size < 1 || (size < world->config.min && !before->done))
        violation(world, "epoch %d has %d ranks", epoch, size);
    for (int rank = 0; rank < size; rank++)
        check_rank(world, ranks, epoch, rank);
    check_kept(world, ranks, epoch, size);
    check_newcomers(world, ranks, epoch, size);
    if (!world->cause && !(before->notice & (MEMBERSHIP_LESS | MEMBERSHIP_MORE)))
        violation(world, "epoch %d has no cause", epoch);
    if (world->last_loss > world->began && world->now < world->last_loss + world->config.settle)
        violation(world, "epoch %d begins before more losses could follow", epoch);
    if (world->config.reset_limit >= 0 && epoch > world->config.reset_limit)
        violation(world, "epoch %d is one too many", epoch);
    world->tally->smaller += size < before->size;
    world->tally->larger += size > before->size;
}

void check_notice(struct world *world, const struct membership_action *action)
{
    const struct mesh *mesh = &world->meshes[world->mesh_count - 1];
    bool more = false, less = false;
    int left = 0, leaving = 0;
    if (action->epoch != world->mesh_count - 1)
        violation(world, "a notice for epoch %d", action->epoch);
    for (int slot = 0; slot < world->program_count; slot++) {
        const struct program *program = &world->programs[slot];
        bool member = mesh_rank(mesh, slot) >= 0;
        bool lives = !program->ended && !program->dismissed;
        more = more || (!member && program->waits && lives);
        less = less || (member && !is_offered(world, program));
        leaving += lives && member && !is_offered(world, program);
        left += lives && (member || program->waits) && is_offered(world, program);
    }
    unsigned change = action->change & ~mesh->notice;
    if (change & MEMBERSHIP_MORE && !more && !world->config.grow_now)
        violation(world, "members are interrupted, but no newcomer is ready");
    if (change & MEMBERSHIP_LESS && left + leaving - 1 < world->config.min)
        violation(world, "members are to leave, but only %d would be left", left);
    if (change & MEMBERSHIP_LESS && !less)
        violation(world, "members are interrupted, but none is to leave");
}

/* ---- processes ----------------------------------------------------------------------------------------- */

/* A host that was lost k times has been left out at least that often. */
void check_start(struct world *world, const struct membership_action *action)
{
    const struct host *host = &world->hosts[action->host];
    int64_t pause = world->config.pause[0];
    int living = 1;
    if (world->early)
        violation(world, "slot %d is started, but a rank's work is complete", action->slot);
    for (int i = 0; i < host->losses && pause < world->config.pause[1]; i++)
        pause *= 2;
    pause = pause < world->config.pause[1] ? pause : world->config.pause[1];
    if (host->losses && (!world->config.pause[1] || world->now < host->lost_at + pause))
        violation(world, "host %d is used before its pause has ended", action->host);
    if (action->seat >= host->offered || host->left >> action->seat & 1)
        violation(world, "host %d has no seat %d", action->host, action->seat);
    for (int slot = 0; slot < world->program_count; slot++) {
        const struct program *program = &world->programs[slot];
        living += !program->ended && !program->dismissed && is_offered(world, program);
    }
    if (living > world->config.max + world->config.spares)
        violation(world, "%d processes are started for %d ranks", living, world->config.max);
    world->tally->started++;
}

static bool is_counted_on(const struct world *world, const struct program *program)
{
    return !program->dismissed && !program->ended && !program->returned &&
           mesh_rank(&world->meshes[world->mesh_count - 1], program->slot) >= 0;
}

void check_dismissal(struct world *world, const struct membership_action *action)
{
    const struct program *program = &world->programs[action->slot];
    bool others = false;
    for (int slot = 0; slot < world->program_count; slot++)
        others = others || (world->programs[slot].host != program->host &&
                            is_counted_on(world, &world->programs[slot]));
    if (action->why == MEMBERSHIP_HOST_OUT && is_counted_on(world, program) && !others &&
        !world->config.drop_last)
        violation(world, "the last host with members is left out");
    if (action->why == MEMBERSHIP_HUNG || action->why == MEMBERSHIP_CUT_OFF)
        world->hosts[program->host].failed_at = world->now;
    if (action->why == MEMBERSHIP_HOST_OUT && is_counted_on(world, program) &&
        world->hosts[program->host].failed_at != world->now)
        violation(world, "slot %d ends, but no member of its host has failed", action->slot);
    /* One that has just continued may not have said so yet. */
    bool stood = program->stopped_until || (program->continued && world->now - program->continued < SECOND);
    if (action->why == MEMBERSHIP_HUNG && program->alive && !program->hangs && !stood)
        violation(world, "slot %d is ended as hung, but is not", action->slot);
}

/* After all actions: members that are not in the new epoch were sent that. */
void check_left_out(struct world *world)
{
    if (world->mesh_count < 2)
        return;
    const struct mesh *last = &world->meshes[world->mesh_count - 1];
    for (int rank = 0; rank < last[-1].size; rank++) {
        const struct program *program = &world->programs[last[-1].ranks[rank].slot];
        if (mesh_rank(last, program->slot) < 0 && !program->ended && !program->dismissed &&
            !program->returned)
            violation(world, "slot %d is in no epoch, and was not sent that", program->slot);
    }
}

/* ---- the training -------------------------------------------------------------------------------------- */

void check_synced(struct world *world, struct mesh *mesh, const struct program *program)
{
    if (mesh->version < 0) {
        mesh->version = program->version;
        mesh->hash = program->live.hash;
    }
    if (mesh->version != program->version || mesh->hash != program->live.hash)
        violation(world, "slot %d continues from another state than the others", program->slot);
    const struct record *before = &mesh->records[mesh_rank(mesh, program->slot)];
    if (before->has_state && program->version < before->version)
        violation(world, "slot %d goes back behind its commit %d", program->slot, before->version);
    if (program->version < world->durable)
        violation(world, "commit %d had returned everywhere, but slot %d continues from %d", world->durable,
                  program->slot, program->version);
    if (program->live.hash != reference(program->live.step))
        violation(world, "slot %d has left out or repeated a step", program->slot);
}

/* A second after the launcher knows, a program that was asked to leave trains only if the job needs it. */
void check_leaving(struct world *world, const struct program *program)
{
    const struct mesh *mesh = &world->meshes[program->epoch];
    int staying = 0, holders = 0;
    if (!program->leaves || world->now < program->leaves + SECOND || program->epoch != world->mesh_count - 1)
        return;
    for (int slot = 0; slot < world->program_count; slot++) {
        const struct program *other = &world->programs[slot];
        bool member = mesh_rank(mesh, slot) >= 0;
        if (other->alive && !member)
            return; /* a newcomer, for which the change may wait */
        staying += member && !other->ended && !other->dismissed && is_offered(world, other);
        holders +=
            member && !other->ended && !other->dismissed && is_offered(world, other) && other->has_state;
    }
    if (holders && staying >= world->config.min)
        violation(world, "slot %d was asked to leave, but trains on", program->slot);
}

void check_collective(struct world *world, const struct mesh *mesh)
{
    for (const struct mesh *later = mesh + 1; later < world->meshes + world->mesh_count; later++) {
        if (later->begun)
            violation(world, "two epochs make progress");
    }
}

/* ---- the end ------------------------------------------------------------------------------------------- */

/* As the launcher knows. */
static bool could_continue(const struct world *world, const struct program *program)
{
    bool holds = program->has_state || !world->synced;
    return !program->dismissed && !program->ended && holds && !program->returned;
}

void check_finish(struct world *world, int exit_code)
{
    const struct mesh *mesh = world->mesh_count ? &world->meshes[world->mesh_count - 1] : NULL;
    bool starved = world->now - world->began >= world->config.timeout;
    for (int rank = 0; mesh && rank < mesh->size && exit_code; rank++) {
        bool limit = world->mesh_count - 1 == world->config.reset_limit;
        if (could_continue(world, &world->programs[mesh->ranks[rank].slot]) && !limit && !starved)
            violation(world, "the job ends, but slot %d could go on", mesh->ranks[rank].slot);
    }
    for (int rank = 0; world->mesh_count && rank < mesh->size && !exit_code; rank++) {
        const struct program *program = &world->programs[mesh->ranks[rank].slot];
        if (program->known_code || (!program->returned && (program->exit_code || program->alive)))
            violation(world, "the job succeeds, but slot %d has not finished", program->slot);
    }
    if (exit_code && !world->failure)
        violation(world, "the job fails without a failure");
    world->tally->succeeded += exit_code == 0;
    world->tally->failed += exit_code != 0;
}

/* Nothing is left that could report that all members hang. */
static bool all_hang(const struct world *world)
{
    const struct mesh *mesh = &world->meshes[world->mesh_count - 1];
    int hanging = 0;
    for (int rank = 0; world->mesh_count && rank < mesh->size; rank++) {
        const struct program *program = &world->programs[mesh->ranks[rank].slot];
        if (program->alive && !program->hangs && !program->stopped_until)
            return false;
        hanging += program->alive;
    }
    return hanging > 0;
}

void check_end(struct world *world)
{
    if (!world->finished && all_hang(world)) {
        world->tally->all_hang++;
        return;
    }
    if (!world->finished)
        violation(world, "the job neither trains nor ends");
    for (int slot = 0; slot < world->program_count; slot++) {
        if (world->programs[slot].alive)
            violation(world, "slot %d lives longer than the job", slot);
    }
}
