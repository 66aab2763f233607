/* check.c - what must hold in every run. */
#include "coordinate/request.h"
#include "world.h"

#include <stdlib.h>
#include <string.h>

/* ---- one batch ----------------------------------------------------------------------------------------- */

static int code_of(const struct world *world, const struct slot *slot)
{
    return slot->name * world->scenario.rounds + slot->round;
}

static void check_readiness(struct virtual_rank *rank, const struct batch *batch)
{
    struct world *world = rank->world;
    for (int i = 0; i < batch->count; i++) {
        const struct slot *slot = batch->requests[i]->owner;
        if (world->asked[code_of(world, slot)] != world->scenario.size)
            violation(world, "rank %d runs \"%s\" of round %d, which %d of %d ranks have submitted",
                      rank->number, slot->text, slot->round, world->asked[code_of(world, slot)],
                      world->scenario.size);
        if (scenario_mismatch(&world->scenario, slot->name, slot->round))
            violation(world, "rank %d runs \"%s\" of round %d, on which the ranks differ", rank->number,
                      slot->text, slot->round);
    }
}

static void check_fusion(struct virtual_rank *rank, const struct batch *batch)
{
    struct world *world = rank->world;
    struct signature_summary first = {0}, summary;
    uint64_t bytes = 0;
    for (int i = 0; i < batch->count; i++) {
        signature_summarize(&batch->requests[i]->signature, &summary);
        first = i ? first : summary;
        bytes += summary.bytes;
        if (batch->count > 1 &&
            (!summary.may_fuse || memcmp(first.fusion_key, summary.fusion_key, FUSION_KEY_LENGTH)))
            violation(world, "rank %d runs requests together that may not share a batch", rank->number);
    }
    if (batch->count > 1 && bytes > world->scenario.fusion_threshold)
        violation(world, "rank %d runs a batch of %llu bytes", rank->number, (unsigned long long)bytes);
    world->tally->batches++;
    world->tally->fused += batch->count > 1;
    world->tally->full += world->ranks[0].running == 1;
}

/* The first rank that runs a batch sets what all others must run. */
static void record(struct virtual_rank *rank, const struct batch *batch)
{
    struct world *world = rank->world;
    if (rank->number != 0)
        violation(world, "rank %d runs batch %d before the root", rank->number, rank->batches);
    check_readiness(rank, batch);
    check_fusion(rank, batch);
    struct decided *decided = &world->decided[world->decided_count++];
    *decided = (struct decided){batch->sequence, batch->algorithm, world->member_count, batch->count};
    for (int i = 0; i < batch->count; i++)
        world->members[world->member_count++] = code_of(world, batch->requests[i]->owner);
}

static void compare(struct virtual_rank *rank, const struct batch *batch)
{
    struct world *world = rank->world;
    const struct decided *decided = &world->decided[rank->batches];
    if (batch->sequence != decided->sequence || batch->count != decided->count ||
        batch->algorithm != decided->algorithm) {
        violation(world, "rank %d: batch %d is decision %llu, not %llu", rank->number, rank->batches,
                  (unsigned long long)batch->sequence, (unsigned long long)decided->sequence);
        return;
    }
    for (int i = 0; i < batch->count; i++) {
        const struct slot *slot = batch->requests[i]->owner;
        if (code_of(world, slot) != world->members[decided->first + i])
            violation(world, "rank %d: member %d of batch %d is \"%s\" of round %d", rank->number, i,
                      rank->batches, slot->text, slot->round);
    }
}

void check_batch(struct virtual_rank *rank, const struct batch *batch)
{
    struct world *world = rank->world;
    int most = world->scenario.names * world->scenario.rounds;
    for (int i = 0; i < batch->count; i++) {
        const struct slot *slot = batch->requests[i]->owner;
        if (slot->rank != rank || slot->state != SLOT_ASKED || rank->closed) {
            violation(world, "rank %d runs \"%s\", which is not in flight", rank->number, slot->text);
            return;
        }
    }
    if (rank->batches == world->decided_count && world->member_count + batch->count <= most)
        record(rank, batch);
    else if (rank->batches < world->decided_count)
        compare(rank, batch);
    else
        violation(world, "rank %d runs more than was ever asked for", rank->number);
}

/* ---- the end of a run ---------------------------------------------------------------------------------- */

static bool has_failed(const struct virtual_rank *rank)
{
    hvd_code health = coordinator_health(rank->coordinator, NULL);
    return health == HVD_PEER_LOST || health == HVD_REFUSED;
}

/* Without faults all ranks run the same, and either everything or until somebody left. */
static void check_orderly_end(struct world *world, struct virtual_rank *rank, bool closing)
{
    const struct scenario *scenario = &world->scenario;
    if (rank->batches != world->decided_count)
        violation(world, "rank %d ran %d of %d batches", rank->number, rank->batches, world->decided_count);
    if (closing != rank->closed)
        violation(world, "rank %d is %s at the end", rank->number, closing ? "not closed" : "closed");
    if (scenario->leavers == 0 && rank->finished_names != scenario->names)
        violation(world, "rank %d is through with %d of %d names at the end", rank->number,
                  rank->finished_names, scenario->names);
}

void check_end(struct world *world)
{
    bool failed = false;
    bool closing = false;
    for (int r = 0; r < world->scenario.size; r++) {
        failed |= has_failed(&world->ranks[r]);
        closing |= world->ranks[r].left;
    }
    world->tally->aborts += failed;
    world->tally->closes += closing && !failed;
    for (int r = 0; r < world->scenario.size && !world->violated; r++) {
        struct virtual_rank *rank = &world->ranks[r];
        if (coordinator_pending_count(rank->coordinator))
            violation(world, "rank %d has %d requests that never end", r,
                      coordinator_pending_count(rank->coordinator));
        for (int n = 0; n < world->scenario.names; n++) {
            if (rank->slots[n].state != SLOT_IDLE)
                violation(world, "rank %d: \"%s\" of round %d never ended", r, rank->slots[n].text,
                          rank->slots[n].round);
        }
        if (!failed)
            check_orderly_end(world, rank, closing);
        else if (!has_failed(rank) && !rank->closed)
            violation(world, "rank %d does not know that the job failed", r);
    }
}
