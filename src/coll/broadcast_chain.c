/* broadcast_chain.c - broadcast of long vectors over several hosts: along a chain of hosts, in shards. Pure
 * planning; the executor's thread.
 *
 *   hosts A (ranks 0 1), B (2 3) and C (4 5), root 0; shard 0 by the carriers 0 2 4, shard 1 by 1 3 5
 *   within the root's host   0 sends shard 1 to 1
 *   between the hosts        0 -> 2 -> 4 shard 0     1 -> 3 -> 5 shard 1
 *   within the hosts         0 sends shard 0 to 1    2 to 3, 4 to 5       3 sends shard 1 to 2, 5 to 4
 *
 *   cost: h + 1 steps on h hosts; each host receives the vector once and sends it once; the last one sends
 * nothing.
 *
 * A rank passes on every byte as soon as it has it, so a long vector flows through the whole chain at once.
 */
#include "coll/hierarchy.h"

/* A chain is as long as there are hosts; a tree is short, but its root sends the vector several times. */
static bool fits(uint64_t bytes, const struct topology *topology, uint64_t latency_threshold)
{
    return topology->hosts > 1 && bytes / (uint64_t)topology->hosts > latency_threshold;
}

/* Returns the rank that sends this rank a shard. */
static int source_of(const struct collective *collective, const struct hierarchy *hierarchy, int carrier)
{
    if (carrier != hierarchy->local_rank)
        return hierarchy_rank(hierarchy, hierarchy->host, carrier);
    if (topology_share_host(hierarchy->topology, collective->rank, collective->root))
        return collective->root;
    return hierarchy_across(hierarchy, -1);
}

static void pass_on(const struct collective *collective, const struct hierarchy *hierarchy,
                    struct range shard, struct contribution complete, struct schedule *schedule)
{
    int next = pattern_shift(hierarchy->host, 1, hierarchy->hosts);
    if (next != hierarchy->topology->host_of[collective->root])
        step_add(schedule, STEP_SEND, hierarchy_across(hierarchy, 1), shard, complete);
    for (int distance = 1; distance < hierarchy->local_size; distance++) {
        int peer = hierarchy_neighbour(hierarchy, distance);
        if (peer != collective->root)
            step_add(schedule, STEP_SEND, peer, shard, complete);
    }
}

static hvd_code plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status)
{
    (void)phase, (void)more, (void)status;
    struct hierarchy hierarchy = hierarchy_of(collective);
    struct range whole = whole_of(collective);
    bool is_root = collective->rank == collective->root;
    if (is_root && !vector_same(&collective->input, &collective->output))
        copy_add(whole, false, schedule);
    for (int carrier = 0; carrier < hierarchy.carriers; carrier++) {
        struct range shard = part_of(collective, whole, hierarchy.carriers, carrier);
        struct contribution complete = {.buffer = BUFFER_INPUT, .gate = STEP_NO_GATE};
        if (!is_root)
            complete = (struct contribution){
                .buffer = BUFFER_OUTPUT,
                .gate = step_add(schedule, STEP_RECEIVE, source_of(collective, &hierarchy, carrier), shard,
                                 (struct contribution){.gate = STEP_NO_GATE})};
        if (carrier == hierarchy.local_rank)
            pass_on(collective, &hierarchy, shard, complete, schedule);
        else if (is_root)
            step_add(schedule, STEP_SEND, hierarchy_rank(&hierarchy, hierarchy.host, carrier), shard,
                     complete);
    }
    return HVD_OK;
}

const struct algorithm broadcast_chain = {
    .name = "chain", .operation = HVD_BROADCAST, .fits = fits, .by_hosts = true, .plan = plan};
