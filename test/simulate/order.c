/* order.c - batches that need one order over all process sets (engine/turns.h): each occupies its rank's
 * device from its start until it is done there, so opposite orders on two ranks would never end. The rule of
 * who has the next turn is written again here, as plainly as possible. */
#include "base/types.h"
#include "world.h"

#include <stdlib.h>

void order_init(struct world *world)
{
    size_t size = (size_t)world->scenario.size;
    world->turns = calloc(size, sizeof *world->turns);
    world->occupied = calloc(size, sizeof *world->occupied);
}

void order_free(struct world *world)
{
    for (int rank = 0; rank < world->scenario.size; rank++)
        turns_free(&world->turns[rank]);
    free(world->turns);
    free(world->occupied);
}

/* The sets that come and go use no device. */
bool order_concerns(const struct virtual_rank *member, const struct batch *batch)
{
    struct signature_summary summary;
    signature_summarize(batch->members[0].signature, &summary);
    return member->set->world->scenario.one_order && member->set->size > 1 && !batch->result &&
           !operation_changes_sets(summary.operation);
}

static struct virtual_rank *member_at(const struct world *world, int set, int rank)
{
    struct virtual_rank *member = world->sets[set] ? find_member(world->sets[set], rank) : NULL;
    return member && member->coordinator ? member : NULL;
}

/* The first batch that waits for its start, or -1. */
static int next_batch(struct virtual_rank *member)
{
    while (member->begun < member->batches && !member->set->decided[member->begun].ordered)
        member->begun++;
    return member->begun < member->batches ? member->begun : -1;
}

static bool has_turn(const struct world *world, const struct virtual_rank *member)
{
    const struct turns *turns = &world->turns[member->rank];
    const struct virtual_rank *first = member_at(world, 0, member->rank);
    if (turns->count || !coordinator_health(first->coordinator, NULL))
        return turns_has(turns, member->set->id);
    for (int s = 1; s < member->set->id; s++) {
        struct virtual_rank *lower = member_at(world, s, member->rank);
        if (lower && (!coordinator_health(lower->coordinator, NULL) || next_batch(lower) >= 0))
            return false;
    }
    world->tally->turnless++;
    return true;
}

void order_look(struct world *world, int rank)
{
    for (int s = 0; s <= SETS_LIMIT && world->scenario.one_order && !world->occupied[rank]; s++) {
        struct virtual_rank *member = member_at(world, s, rank);
        int batch = member ? next_batch(member) : -1;
        if (batch < 0 || !has_turn(world, member))
            continue;
        if (world->turns[rank].count)
            turns_use(&world->turns[rank]);
        world->occupied[rank] = true;
        world->tally->ordered++;
        member->begun++;
        member_started(member, batch);
    }
}

void order_ask(struct virtual_rank *member)
{
    struct world *world = member->set->world;
    struct virtual_rank *first = member_at(world, 0, member->rank);
    if (member == first) {
        turns_add(&world->turns[member->rank], 0);
    } else if (member_parent(member) < 0) {
        coordinator_ask_turn(first->coordinator, member->set->id);
        plan_turn(first);
    }
}

void order_turn(void *owner, int set)
{
    const struct virtual_rank *first = owner;
    struct world *world = first->set->world;
    bool known = set <= SETS_LIMIT && member_at(world, set, first->rank);
    if (known)
        turns_add(&world->turns[first->rank], set);
    else if (set > SETS_LIMIT || !world->sets[set])
        violation(world, "rank %d gets a turn of set %d, which there is not", first->rank, set);
    world->tally->turns++;
}

void order_done(const struct virtual_rank *member, int batch)
{
    if (member->set->decided[batch].ordered)
        member->set->world->occupied[member->rank] = false;
}
