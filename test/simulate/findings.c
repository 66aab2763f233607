/* findings.c - the reports that a rank has found NaN or infinity in its input: all members receive the same
 * ones, each at the same place among the batches, and before any batch with what the finder has requested
 * later. */
#include "random.h"
#include "world.h"

void findings_draw(struct slot *slot)
{
    struct virtual_rank *member = slot->member;
    struct world *world = member->set->world;
    if (!world->findings_left || !random_chance(&world->finding_random, 10))
        return;
    world->findings_left--;
    member->found++;
    coordinator_found(member->coordinator, &slot->pending);
}

void findings_received(void *owner, int rank, hvd_operation operation, uint32_t mark)
{
    struct virtual_rank *member = owner;
    struct set *set = member->set;
    struct virtual_rank *finder = rank >= 0 && rank < set->size ? &set->members[rank] : NULL;
    struct finding_seen *seen = &set->findings[member->findings];
    (void)mark; /* the engine's own */
    set->world->tally->findings++;
    if (!finder || member->findings == FINDINGS_MOST) {
        violation(set->world, "rank %d receives a finding of rank %d, which made none", member->rank, rank);
        return;
    }
    if (member->number == 0) {
        *seen = (struct finding_seen){rank, operation};
        finder->found_at_root++;
    }
    if (seen->rank != rank || seen->operation != operation)
        violation(set->world, "finding %d of set %d is of rank %d, and of rank %d on rank %d",
                  member->findings, set->id, seen->rank, rank, member->rank);
    member->findings++;
}

/* The root receives it first, when all that request it still wait for it. */
static void check_finders(const struct virtual_rank *root, const struct slot *slot)
{
    const struct set *set = root->set;
    for (int m = 0; m < set->size; m++) {
        const struct virtual_rank *member = &set->members[m];
        const struct slot *other = member->slots ? &member->slots[slot->name] : NULL;
        if (other && other->state == SLOT_ASKED && other->round == slot->round &&
            other->found > member->found_at_root)
            violation(set->world, "\"%s\" is decided before what rank %d had found earlier", slot->text,
                      member->rank);
    }
}

void findings_check(struct virtual_rank *member, const struct batch *batch, struct decided *decided)
{
    if (member->number == 0) {
        decided->findings = member->findings;
        for (int i = 0; i < batch->count; i++) {
            if (batch->requests[i])
                check_finders(member, batch->requests[i]->owner);
        }
    }
    if (decided->findings != member->findings)
        violation(member->set->world, "rank %d runs a batch after %d findings, the root after %d",
                  member->rank, member->findings, decided->findings);
}
