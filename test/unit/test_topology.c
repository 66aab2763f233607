/* test_topology.c - layouts of ranks on hosts, each against the definition, rank by rank. */
#include "base/topology.h"
#include "random.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 24 };

struct layout {
    const char *name;
    int size, labels[RANKS];
};

static const struct layout layouts[] = {
    {"one rank", 1, {0}},
    {"one host", 6, {3, 3, 3, 3, 3, 3}},
    {"one rank a host", 5, {0, 1, 2, 3, 4}},
    {"contiguous", 8, {0, 0, 0, 0, 1, 1, 1, 1}},
    {"contiguous, 2,1,3", 6, {0, 0, 1, 2, 2, 2}},
    {"cyclic", 8, {0, 1, 0, 1, 0, 1, 0, 1}},
    {"cyclic, 2,1,3", 6, {0, 1, 2, 0, 2, 2}},
    {"cyclic until a host is full", 7, {0, 1, 2, 0, 2, 0, 2}},
    {"labels in no order", 6, {17, 4, 17, 0, 4, 17}},
};

static int count_host(const struct layout *layout, int rank, int limit)
{
    int count = 0;
    for (int other = 0; other < limit; other++)
        count += layout->labels[other] == layout->labels[rank];
    return count;
}

/* Of the ranks below `limit`: those with this local rank. */
static int count_local(const struct layout *layout, int local_rank, int limit)
{
    int count = 0;
    for (int other = 0; other < limit; other++)
        count += count_host(layout, other, other) == local_rank;
    return count;
}

/* The first rank of the host of `rank`. */
static int first_on_host(const struct layout *layout, int rank)
{
    int first = 0;
    while (layout->labels[first] != layout->labels[rank])
        first++;
    return first;
}

/* Counts the ranks with this local rank on hosts whose first rank is before that of `rank`'s host. */
static int count_before(const struct layout *layout, int rank)
{
    int count = 0, local_rank = count_host(layout, rank, rank);
    for (int other = 0; other < layout->size; other++)
        count += count_host(layout, other, other) == local_rank &&
                 first_on_host(layout, other) < first_on_host(layout, rank);
    return count;
}

static void check_rank(const struct topology *t, const struct layout *layout, int rank)
{
    int host = t->host_of[rank];
    assert_in_range(host, 0, t->hosts - 1);
    assert_int_equal(t->rank_at[t->place_of[rank]], rank);
    assert_in_range(t->place_of[rank], t->first[host], t->first[host + 1] - 1);
    assert_int_equal(topology_leader(t, host), first_on_host(layout, rank));
    assert_int_equal(topology_local_rank(t, rank), count_host(layout, rank, rank));
    assert_int_equal(topology_local_size(t, rank), count_host(layout, rank, layout->size));
    assert_int_equal(topology_cross_rank(t, rank), count_before(layout, rank));
    assert_int_equal(topology_cross_size(t, rank),
                     count_local(layout, count_host(layout, rank, rank), layout->size));
    for (int other = 0; other < layout->size; other++)
        assert_int_equal(topology_share_host(t, rank, other), layout->labels[rank] == layout->labels[other]);
}

static void check_layout(const struct layout *layout)
{
    struct topology t;
    ASSERT_OK(topology_init(&t, layout->labels, layout->size, &check_status));
    bool homogeneous = true;
    assert_int_equal(t.size, layout->size);
    assert_int_equal(t.first[t.hosts], layout->size);
    for (int rank = 0; rank < layout->size; rank++) {
        check_rank(&t, layout, rank);
        homogeneous &= count_host(layout, rank, layout->size) == count_host(layout, 0, layout->size);
    }
    /* Hosts count up with their leaders, and rank 0 leads the first one. */
    assert_int_equal(topology_leader(&t, 0), 0);
    for (int host = 1; host < t.hosts; host++)
        assert_true(topology_leader(&t, host - 1) < topology_leader(&t, host));
    assert_int_equal(topology_is_homogeneous(&t), homogeneous);
    topology_free(&t);
}

TEST(layouts_give_what_the_definitions_say)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        check_layout(&layouts[i]);
}

TEST(random_layouts_too)
{
    uint64_t random = random_mix(7);
    for (int i = 0; i < 500; i++) {
        struct layout layout = {.size = 1 + (int)random_below(&random, RANKS)};
        int hosts = 1 + (int)random_below(&random, layout.size);
        for (int rank = 0; rank < layout.size; rank++)
            layout.labels[rank] = (int)random_below(&random, hosts);
        check_layout(&layout);
    }
}

TEST(places_of_neighbours_are_their_ranks)
{
    struct topology t;
    ASSERT_OK(topology_init(&t, (const int[]){0, 0, 1, 2, 2, 2}, 6, &check_status));
    for (int rank = 0; rank < t.size; rank++)
        assert_int_equal(t.place_of[rank], rank);
    topology_free(&t);
    static const int places[] = {0, 2, 3, 1, 4, 5};
    ASSERT_OK(topology_init(&t, (const int[]){0, 1, 2, 0, 2, 2}, 6, &check_status));
    assert_memory_equal(t.place_of, places, sizeof places);
    topology_free(&t);
}

/* A subset is the topology of its ranks' labels, in its own order of ranks. */
TEST(a_subset_has_a_topology_of_its_own)
{
    static const int members[][4] = {{0, 3, -1}, {5, 0, 2, -1}, {1, 4, -1}, {2, -1}};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const struct layout *layout = &layouts[6];
        struct layout of_members = {0};
        struct topology t, subset, expected;
        for (int k = 0; k < 4 && members[i][k] >= 0; k++)
            of_members.labels[of_members.size++] = layout->labels[members[i][k]];
        ASSERT_OK(topology_init(&t, layout->labels, layout->size, &check_status));
        ASSERT_OK(topology_subset(&subset, &t, members[i], of_members.size, &check_status));
        ASSERT_OK(topology_init(&expected, of_members.labels, of_members.size, &check_status));
        assert_int_equal(subset.hosts, expected.hosts);
        assert_memory_equal(subset.host_of, expected.host_of, (size_t)(4 * subset.size) * sizeof(int));
        topology_free(&t);
        topology_free(&subset);
        topology_free(&expected);
    }
}

/* Memory is shared by whoever reaches the same sockets, whatever host horovodrun counts it to. */
TEST(hosts_and_systems)
{
    char system[TOPOLOGY_HOST_LIMIT], host[TOPOLOGY_HOST_LIMIT], text[TOPOLOGY_HOST_LIMIT];
    topology_own_system("", system, sizeof system);
    topology_own_host("", host, sizeof host);
    assert_true(strncmp(host, system, strlen(system)) == 0 && host[strlen(system)] == '/');
    topology_own_system(host, text, sizeof text);
    assert_string_equal(text, system);
    strcat(host, "/node 2");
    topology_own_system(host, text, sizeof text);
    assert_string_equal(text, system);
    /* A name that the user has given separates both. */
    topology_own_system("a", text, sizeof text);
    assert_string_equal(text, "a");
    topology_own_host("a", text, sizeof text);
    assert_string_equal(text, "a");
}
