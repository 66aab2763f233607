/* allreduce_hierarchical.c - for long vectors on hosts with several ranks: each host reduces its own part
 * first, so that its network carries every byte once, however many ranks it has.
 *
 *   hosts A (ranks 0 1 2) and B (ranks 3 4); as many shards as the smallest host has ranks: 0 and 1
 *   within the hosts    0 gets shard 0 of 1, 2     1 gets shard 1 of 0, 2     3: of 4     4: of 3
 *   between the hosts   0 <-> 3 reduce shard 0 around a ring of hosts, 1 <-> 4 shard 1
 *   within the hosts    0 sends shard 0 to 1, 2    1 sends shard 1 to 0, 2    3: to 4     4: to 3
 *
 *   cost: 2(h-1) + 2 steps on h hosts; each host sends 2(h-1)/h of the vector, the least possible (a ring of
 *   all n ranks sends 2(n-1)/n). Thakur, Rabenseifner, Gropp: Optimization of Collective Communication
 *   Operations in MPICH, 2005.
 *
 * A rank that has a shard adds up its host's parts in the order of local ranks from its own on. A complete
 * byte overwrites the one that was sent, and can't come earlier, since it contains that. */
#include "coll/pattern.h"

#define SHARD_LIMIT 8 /* more ranks of a host than this do not fill its network better */

static bool fits(uint64_t bytes, const struct topology *topology, uint64_t latency_threshold)
{
    (void)bytes, (void)latency_threshold; /* short vectors have gone to rows before */
    return topology->hosts > 1 && topology->hosts < topology->size;
}

static int count_shards(const struct topology *topology)
{
    int shards = SHARD_LIMIT;
    for (int host = 0; host < topology->hosts; host++) {
        int size = topology_host_size(topology, host);
        shards = size < shards ? size : shards;
    }
    return shards;
}

static int local_peer(const struct collective *collective, int local_rank)
{
    const struct topology *topology = collective->topology;
    return topology->rank_at[topology->first[topology->host_of[collective->rank]] + local_rank];
}

/* Each shard goes to the rank of this host that has it; returns this rank's, reduced. */
static struct contribution reduce_on_host(const struct collective *collective, struct range piece, int shards,
                                          struct schedule *schedule)
{
    const struct topology *topology = collective->topology;
    int me = topology_local_rank(topology, collective->rank);
    int size = topology_local_size(topology, collective->rank);
    for (int shard = 0; shard < shards; shard++) {
        struct range range = part_of(collective, piece, shards, shard);
        if (shard != me)
            step_add(schedule, STEP_SEND, local_peer(collective, shard), range,
                     contribution_add(collective, range, schedule));
    }
    if (me >= shards)
        return (struct contribution){0};
    struct range own = part_of(collective, piece, shards, me);
    struct contribution sum = contribution_add(collective, own, schedule);
    for (int distance = 1; distance < size; distance++) {
        int from = local_peer(collective, pattern_shift(me, distance, size));
        sum = (struct contribution){BUFFER_OUTPUT, step_add(schedule, STEP_REDUCE, from, own, sum)};
    }
    if (topology->hosts == 1)
        step_set_last(schedule, sum.gate);
    return sum;
}

static void send_to_host(const struct collective *collective, struct range block,
                         struct contribution complete, struct schedule *schedule)
{
    int me = topology_local_rank(collective->topology, collective->rank);
    int size = topology_local_size(collective->topology, collective->rank);
    for (int distance = 1; distance < size; distance++)
        step_add(schedule, STEP_SEND, local_peer(collective, pattern_shift(me, distance, size)), block,
                 complete);
}

/* What the others of this host have complete, in the order in which they get it. */
static void receive_from_host(const struct collective *collective, struct range piece, int shards,
                              struct schedule *schedule)
{
    const struct topology *topology = collective->topology;
    int me = topology_local_rank(topology, collective->rank), host = topology->host_of[collective->rank];
    for (int shard = 0; shard < shards; shard++) {
        struct range range = part_of(collective, piece, shards, shard);
        for (int turn = 0; shard != me && turn < topology->hosts; turn++) {
            int block = pattern_shift(host, 1 - turn, topology->hosts);
            step_add(schedule, STEP_RECEIVE, local_peer(collective, shard),
                     part_of(collective, range, topology->hosts, block),
                     (struct contribution){.gate = STEP_NO_GATE});
        }
    }
}

/* Of the ranks that have the same shard, one on each host. */
static struct ring ring_of_hosts(const struct collective *collective, const struct contribution *own)
{
    const struct topology *topology = collective->topology;
    int host = topology->host_of[collective->rank];
    int local_rank = topology_local_rank(topology, collective->rank);
    int left = pattern_shift(host, -1, topology->hosts), right = pattern_shift(host, 1, topology->hosts);
    return (struct ring){.left = topology->rank_at[topology->first[left] + local_rank],
                         .right = topology->rank_at[topology->first[right] + local_rank],
                         .place = host,
                         .size = topology->hosts,
                         .own = own};
}

static struct contribution reduce(const struct collective *collective, struct range piece, int shards,
                                  struct schedule *schedule)
{
    struct contribution own = reduce_on_host(collective, piece, shards, schedule);
    int me = topology_local_rank(collective->topology, collective->rank);
    if (me >= shards || collective->topology->hosts == 1)
        return own;
    struct ring ring = ring_of_hosts(collective, &own);
    return ring_reduce(collective, &ring, part_of(collective, piece, shards, me), part_of, ring.place,
                       schedule);
}

static void gather(const struct collective *collective, struct range piece, int shards,
                   struct contribution reduced, struct schedule *schedule)
{
    int me = topology_local_rank(collective->topology, collective->rank);
    if (me < shards) {
        struct ring ring = ring_of_hosts(collective, NULL);
        ring_gather(collective, &ring, part_of(collective, piece, shards, me), part_of, reduced, send_to_host,
                    schedule);
    }
    receive_from_host(collective, piece, shards, schedule);
}

/* In pieces, as the ring of all ranks: hosts reduce one while the piece before is on the network. */
static hvd_code plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status)
{
    (void)phase, (void)more, (void)status;
    int shards = count_shards(collective->topology),
        pieces = count_pieces(collective, shards * collective->topology->hosts);
    struct range whole = whole_of(collective);
    struct contribution reduced = {0};
    for (int i = 0; i <= pieces; i++) {
        struct contribution before = reduced;
        if (i < pieces)
            reduced = reduce(collective, part_of(collective, whole, pieces, i), shards, schedule);
        if (i > 0)
            gather(collective, part_of(collective, whole, pieces, i - 1), shards, before, schedule);
    }
    return HVD_OK;
}

const struct algorithm allreduce_hierarchical = {
    .name = "hierarchical", .operation = HVD_ALLREDUCE, .fits = fits, .plan = plan, .ordered_ranks = 2};
