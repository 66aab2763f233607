/* hierarchy.c - computes the two levels of ranks from the topology, and plans the steps of reducing and
 * gathering over them for every algorithm that goes by hosts or around a flat ring. Pure functions on the
 * collective's schedule; the executor's thread. All ranks must add these steps in one order, see hierarchy.h.
 */
#include "coll/hierarchy.h"

#define CARRIER_LIMIT 8 /* more ranks of a host than this do not fill its network better */

int hierarchy_host_size(const struct hierarchy *hierarchy, int host)
{
    return hierarchy->flat ? 1 : topology_host_size(hierarchy->topology, host);
}

int hierarchy_rank(const struct hierarchy *hierarchy, int host, int local_rank)
{
    const struct topology *topology = hierarchy->topology;
    return topology->rank_at[(hierarchy->flat ? host : topology->first[host]) + local_rank];
}

int hierarchy_neighbour(const struct hierarchy *hierarchy, int distance)
{
    return hierarchy_rank(hierarchy, hierarchy->host,
                          pattern_shift(hierarchy->local_rank, distance, hierarchy->local_size));
}

int hierarchy_across(const struct hierarchy *hierarchy, int distance)
{
    return hierarchy_rank(hierarchy, pattern_shift(hierarchy->host, distance, hierarchy->hosts),
                          hierarchy->local_rank);
}

struct hierarchy hierarchy_of(const struct collective *collective)
{
    const struct topology *topology = collective->topology;
    struct hierarchy hierarchy = {.topology = topology,
                                  .flat = !collective->algorithm->by_hosts,
                                  .hosts = topology->size,
                                  .carriers = 1,
                                  .host = topology->place_of[collective->rank],
                                  .local_size = 1};
    if (hierarchy.flat)
        return hierarchy;
    hierarchy.hosts = topology->hosts;
    hierarchy.host = topology->host_of[collective->rank];
    hierarchy.local_rank = topology_local_rank(topology, collective->rank);
    hierarchy.local_size = topology_local_size(topology, collective->rank);
    hierarchy.carriers = CARRIER_LIMIT;
    for (int host = 0; host < hierarchy.hosts; host++) {
        int size = topology_host_size(topology, host);
        hierarchy.carriers = size < hierarchy.carriers ? size : hierarchy.carriers;
    }
    return hierarchy;
}

bool hierarchy_fits(uint64_t bytes, const struct topology *topology, uint64_t latency_threshold)
{
    (void)bytes, (void)latency_threshold; /* rows for short batches are tried first */
    return topology->hosts > 1 && topology->hosts < topology->size;
}

static struct contribution reduce_on_host(const struct collective *collective,
                                          const struct hierarchy *hierarchy, struct range block,
                                          struct schedule *schedule)
{
    struct contribution sum = contribution_add(collective, block, schedule);
    for (int distance = 1; distance < hierarchy->local_size; distance++)
        sum = reduce_add(schedule, hierarchy_neighbour(hierarchy, distance), block, sum, false);
    return sum;
}

struct contribution hierarchy_reduce(const struct collective *collective, const struct hierarchy *hierarchy,
                                     block_fn block_of, int round, struct schedule *schedule)
{
    struct contribution sum = {0};
    bool has_sum = false; /* true if the block that the previous host sends is a sum */
    for (int turn = 1; turn <= hierarchy->hosts; turn++) {
        int host = pattern_shift(hierarchy->host, -turn, hierarchy->hosts);
        for (int carrier = 0; carrier < hierarchy->carriers; carrier++) {
            struct range block = block_of(collective, hierarchy, carrier, host, round);
            if (carrier != hierarchy->local_rank) {
                step_add(schedule, STEP_SEND, hierarchy_rank(hierarchy, hierarchy->host, carrier), block,
                         contribution_add(collective, block, schedule));
                continue;
            }
            sum = reduce_on_host(collective, hierarchy, block, schedule);
            if (turn > 1)
                sum = reduce_add(schedule, hierarchy_across(hierarchy, -1), block, sum, has_sum);
            if (turn < hierarchy->hosts)
                step_add(schedule, STEP_SEND, hierarchy_across(hierarchy, 1), block, sum);
            else
                step_set_last(schedule, sum.gate);
        }
        has_sum = turn > 1 || hierarchy_host_size(hierarchy, host) > 1;
    }
    return sum;
}

void hierarchy_gather(const struct collective *collective, const struct hierarchy *hierarchy,
                      block_fn block_of, int round, struct contribution complete, struct schedule *schedule)
{
    for (int turn = 0; turn < hierarchy->hosts; turn++) {
        int host = pattern_shift(hierarchy->host, -turn, hierarchy->hosts);
        for (int carrier = 0; carrier < hierarchy->carriers; carrier++) {
            struct range block = block_of(collective, hierarchy, carrier, host, round);
            struct contribution none = {.gate = STEP_NO_GATE};
            if (carrier != hierarchy->local_rank) {
                step_add(schedule, STEP_RECEIVE, hierarchy_rank(hierarchy, hierarchy->host, carrier), block,
                         none);
                continue;
            }
            if (turn)
                complete = (struct contribution){
                    .buffer = BUFFER_OUTPUT,
                    .gate = step_add(schedule, STEP_RECEIVE, hierarchy_across(hierarchy, -1), block, none)};
            if (turn < hierarchy->hosts - 1)
                step_add(schedule, STEP_SEND, hierarchy_across(hierarchy, 1), block, complete);
            for (int distance = 1; distance < hierarchy->local_size; distance++)
                step_add(schedule, STEP_SEND, hierarchy_neighbour(hierarchy, distance), block, complete);
        }
    }
}
