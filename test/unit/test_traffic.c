/* test_traffic.c - the bytes that each host's network sends and receives, by the plans of all ranks: for long
 * batches no more than the least possible on the busiest host, whatever the layout. */
#include "coll/collective.h"
#include "test.h"

#include <stdlib.h>

enum { RANKS = 16, HOSTS = 8, BYTES = 1 << 20 };

static const struct layout {
    const char *name;
    int hosts[RANKS + 1]; /* by rank; ended by -1 */
    bool power_of_two;    /* so many hosts */
} layouts[] = {
    {"1,1,1,1", {0, 1, 2, 3, -1}, true},
    {"2,2,2,2", {0, 0, 1, 1, 2, 2, 3, 3, -1}, true},
    {"1,3,2,2", {0, 1, 1, 1, 2, 2, 3, 3, -1}, true},
    {"4,4", {0, 0, 0, 0, 1, 1, 1, 1, -1}, true},
    {"4,4,4,4", {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, -1}, true},
    {"4,4 cyclic", {0, 1, 0, 1, 0, 1, 0, 1, -1}, true},
    {"2,3,1 cyclic", {0, 1, 2, 0, 1, 1, -1}, false},
    {"1,1,1,1,1,1,1,1", {0, 1, 2, 3, 4, 5, 6, 7, -1}, true},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static struct topology topology_of(const struct layout *layout)
{
    struct topology topology;
    int size = 0;
    while (layout->hosts[size] >= 0)
        size++;
    ASSERT_OK(topology_init(&topology, layout->hosts, size, &check_status));
    return topology;
}

/* ---- what the plans move ---------------------------------------------------------------------------- */

struct traffic {
    size_t sent[HOSTS], received[HOSTS]; /* over the network of each host */
};

static char memory[BYTES];

static hvd_code gathered(struct collective *collective, const uint64_t *rows, hvd_status *status)
{
    (void)rows, (void)status;
    collective->output = (struct vector){0};
    return HVD_OK;
}

/* Bytes that each rank contributes or gets, or has for each other rank. */
static size_t share_of(const struct topology *topology)
{
    return BYTES / (size_t)topology->size;
}

static struct collective collective_of(hvd_operation operation, hvd_reduction reduction, int root, int rank,
                                       const struct topology *topology, const struct vector *vector)
{
    static const struct settings settings = {.allreduce_algorithm = "auto",
                                             .latency_threshold = 16384,
                                             .hierarchical_allreduce = true,
                                             .hierarchical_allgather = true};
    static size_t blocks[RANKS + 1];
    static uint64_t own_rows[RANKS];
    static const uint64_t row_bytes[] = {1};
    int row = algorithm_choose(operation, reduction, BYTES, topology, 16384, &settings);
    for (int i = 0; i < topology->size; i++) {
        blocks[i + 1] = blocks[i] + share_of(topology);
        own_rows[i] = share_of(topology);
    }
    return (struct collective){.operation = operation,
                               .reduction = reduction,
                               .dtype = operation_reduces(operation) ? HVD_FLOAT32 : HVD_UINT8,
                               .algorithm = algorithm_table[row],
                               .piece_bytes = 512 << 10,
                               .prescale = 1,
                               .postscale = 1,
                               .root = root,
                               .rank = rank,
                               .size = topology->size,
                               .topology = topology,
                               .input = *vector,
                               .output = *vector,
                               .tensors = 1,
                               .own_rows = own_rows,
                               .row_bytes = row_bytes,
                               .gathered = gathered,
                               .blocks = blocks};
}

/* While the lengths go around the output is their table. */
static void fill_lengths(struct collective *collective)
{
    bool exchanges = (collective->operation == HVD_ALLGATHER || collective->operation == HVD_ALLTOALL) &&
                     collective->output.length > 0;
    uint64_t *lengths = exchanges ? (uint64_t *)(void *)collective->output.spans[0].data : NULL;
    for (size_t i = 0; exchanges && i < collective->output.length / sizeof *lengths; i++)
        lengths[i] = share_of(collective->topology);
}

static void count_steps(const struct schedule *schedule, const struct collective *collective,
                        struct traffic *traffic)
{
    const int *host_of = collective->topology->host_of;
    int host = host_of[collective->rank];
    for (int i = 0; i < schedule->count; i++) {
        const struct step *step = &schedule->steps[i];
        if (!step_is_local(step) && host_of[step->peer] != host)
            *(step->kind == STEP_SEND ? &traffic->sent[host] : &traffic->received[host]) +=
                step->length * hvd_dtype_size(collective->dtype);
    }
}

static struct traffic traffic_of(hvd_operation operation, hvd_reduction reduction, int root,
                                 const struct topology *topology)
{
    struct traffic traffic = {0};
    struct span span = {memory, sizeof memory};
    size_t start;
    struct vector vector = {&span, &start, 1, 0};
    struct schedule schedule = {0};
    vector_measure(&vector);
    for (int rank = 0; rank < topology->size; rank++) {
        struct collective collective = collective_of(operation, reduction, root, rank, topology, &vector);
        bool more = true;
        for (int phase = 0; more; phase++) {
            schedule_clear(&schedule);
            assert_int_equal(algorithm_plan(&collective, phase, &schedule, &more, NULL), HVD_OK);
            count_steps(&schedule, &collective, &traffic);
            if (more)
                fill_lengths(&collective);
        }
        free(collective.scratch);
    }
    schedule_free(&schedule);
    return traffic;
}

/* ---- the least possible ------------------------------------------------------------------------------- */

/* The host must receive what the others contribute (allgather), or send what they get (reducescatter). */
static size_t all_but_own(const struct topology *topology, int host)
{
    return share_of(topology) * (size_t)(topology->size - topology_host_size(topology, host));
}

/* The rank of another host gets a block of its own from each rank of this one. */
static size_t pairs(const struct topology *topology, int host)
{
    return all_but_own(topology, host) * (size_t)topology_host_size(topology, host);
}

static size_t once(const struct topology *topology, int host)
{
    (void)topology, (void)host;
    return BYTES;
}

/* Patarasuk and Yuan, 2009, with the ranks of a host as one. */
static size_t twice_but_own(const struct topology *topology, int host)
{
    (void)host;
    return (size_t)2 * BYTES * (size_t)(topology->hosts - 1) / (size_t)topology->hosts;
}

static void check_busiest(const struct layout *layout, hvd_operation operation, hvd_reduction reduction,
                          int root, size_t (*least_of)(const struct topology *, int))
{
    struct topology topology = topology_of(layout);
    struct traffic traffic = traffic_of(operation, reduction, root, &topology);
    size_t busiest = 0, least = 0;
    for (int host = 0; host < topology.hosts; host++) {
        size_t needed = least_of(&topology, host);
        least = needed > least ? needed : least;
        busiest = traffic.sent[host] > busiest ? traffic.sent[host] : busiest;
        busiest = traffic.received[host] > busiest ? traffic.received[host] : busiest;
    }
    if ((double)busiest > 1.03 * (double)least)
        fail_msg("%s on %s from root %d: the busiest host moves %.2f of the least possible %zu bytes",
                 hvd_operation_name(operation), layout->name, root, (double)busiest / (double)least, least);
    topology_free(&topology);
}

#define TRAFFIC(name, operation, reduction, least)                                                           \
    TEST(name)                                                                                               \
    {                                                                                                        \
        for (int i = 0; i < LAYOUTS; i++)                                                                    \
            check_busiest(&layouts[i], operation, reduction, 0, least);                                      \
    }
TRAFFIC(allreduce_moves_the_least, HVD_ALLREDUCE, HVD_SUM, twice_but_own)
TRAFFIC(allgather_moves_the_least, HVD_ALLGATHER, HVD_SUM, all_but_own)
TRAFFIC(reducescatter_moves_the_least, HVD_REDUCESCATTER, HVD_SUM, all_but_own)
TRAFFIC(alltoall_moves_the_least, HVD_ALLTOALL, HVD_SUM, pairs)

/* If the number of hosts is a power of two, none of them is folded in. */
TEST(adasum_moves_the_least)
{
    for (int i = 0; i < LAYOUTS; i++)
        if (layouts[i].power_of_two)
            check_busiest(&layouts[i], HVD_ALLREDUCE, HVD_ADASUM, 0, twice_but_own);
}

TEST(broadcast_moves_the_least)
{
    for (int i = 0; i < LAYOUTS; i++)
        for (int root = 0; layouts[i].hosts[root] >= 0; root++)
            check_busiest(&layouts[i], HVD_BROADCAST, HVD_SUM, root, once);
}
