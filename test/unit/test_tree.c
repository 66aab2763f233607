/* test_tree.c - the tree of reports: on layouts of ranks on hosts. */
#include "coordinate/tree.h"
#include "random.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 64 };

/* Every place has one parent that knows it as its child, subtrees are runs of places, and all hang on rank 0.
 */
static void check_tree(const int *hosts, int size, int fanout)
{
    struct topology topology;
    struct tree_node nodes[RANKS]; /* by place */
    ASSERT_OK(topology_init(&topology, hosts, size, &check_status));
    for (int p = 0; p < size; p++)
        ASSERT_OK(tree_node_init(&nodes[p], &topology, topology.rank_at[p], fanout, &check_status));
    assert_int_equal(topology.rank_at[0], 0);
    assert_int_equal(nodes[0].parent, -1);
    assert_int_equal(nodes[0].subtree_size, size);
    for (int p = 0; p < size; p++) {
        int next = p + 1, locals = topology_local_size(&topology, topology.rank_at[p]) - 1;
        assert_int_equal(nodes[p].place, p);
        for (int c = 0; c < nodes[p].child_count; c++) {
            int child = nodes[p].children[c];
            assert_int_equal(child, next);
            assert_int_equal(nodes[child].parent, p);
            assert_int_equal(tree_child_last(&nodes[p], c), child + nodes[child].subtree_size - 1);
            /* First the rest of the host, then leaders of others, at most as many as the fan-out. */
            assert_int_equal(topology_share_host(&topology, topology.rank_at[p], topology.rank_at[child]),
                             c < locals);
            assert_true(c < locals + fanout);
            next = child + nodes[child].subtree_size;
        }
        assert_int_equal(next, p + nodes[p].subtree_size);
    }
    for (int p = 0; p < size; p++)
        tree_node_free(&nodes[p]);
    topology_free(&topology);
}

TEST(subtrees_are_runs_of_places)
{
    static const struct {
        int fanout, size, hosts[RANKS];
    } layouts[] = {
        {16, 1, {0}},
        {16, 9, {0}},
        {2, 2, {0, 1}},
        {2, 10, {0, 1, 1, 2, 2, 2, 3, 3, 3, 3}},
        {2, 6, {0, 0, 1, 2, 2, 2}},
        {2, 6, {0, 1, 2, 0, 2, 2}},
        {1, 8, {0, 1, 2, 3, 0, 1, 2, 3}},
        {2, 9, {4, 3, 2, 1, 0, 1, 2, 3, 4}},
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        check_tree(layouts[i].hosts, layouts[i].size, layouts[i].fanout);
}

TEST(any_layout_gives_a_tree)
{
    uint64_t random = random_mix(11);
    for (int i = 0; i < 500; i++) {
        int hosts[RANKS], size = 1 + (int)random_below(&random, RANKS);
        int count = 1 + (int)random_below(&random, size);
        for (int rank = 0; rank < size; rank++)
            hosts[rank] = (int)random_below(&random, count);
        check_tree(hosts, size, 1 + (int)random_below(&random, 5));
    }
}

static struct tree_node node_of(const struct topology *topology, int rank, int fanout)
{
    struct tree_node node;
    ASSERT_OK(tree_node_init(&node, topology, rank, fanout, &check_status));
    return node;
}

TEST(locals_report_to_their_host)
{
    static const int children[] = {1, 2, 5};
    struct topology topology;
    ASSERT_OK(topology_init(&topology, (const int[]){0, 0, 1, 1, 1, 2}, 6, &check_status));
    struct tree_node node = node_of(&topology, 0, 16);
    assert_int_equal(node.child_count, 3);
    assert_memory_equal(node.children, children, sizeof children);
    tree_node_free(&node);
    node = node_of(&topology, 4, 16);
    assert_int_equal(node.parent, 2);
    assert_int_equal(node.child_count, 0);
    tree_node_free(&node);
    topology_free(&topology);
}

TEST(depth_is_logarithmic)
{
    enum { HOSTS = 4096 };
    static int hosts[HOSTS];
    struct topology topology;
    for (int i = 0; i < HOSTS; i++)
        hosts[i] = i;
    ASSERT_OK(topology_init(&topology, hosts, HOSTS, &check_status));
    int depth = 0;
    for (int rank = HOSTS - 1; rank > 0; depth++) {
        struct tree_node node = node_of(&topology, rank, 16);
        rank = node.parent;
        tree_node_free(&node);
    }
    assert_in_range(depth, 3, 4);
    topology_free(&topology);
}
