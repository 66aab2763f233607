/* test_tree.c - the tree of reports and the setting that describes the hosts. */
#include "coordinate/tree.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

struct shape {
    int fanout, hosts, sizes[64];
};

/* Every rank has one parent that knows it as its child, subtrees are runs of ranks, and all hang on rank 0.
 */
static void check_tree(const struct shape *shape)
{
    int size = 0;
    for (int i = 0; i < shape->hosts; i++)
        size += shape->sizes[i];
    struct tree_node *nodes = calloc((size_t)size, sizeof *nodes);
    for (int r = 0; r < size; r++)
        ASSERT_OK(tree_node_init(&nodes[r], r, shape->sizes, shape->hosts, shape->fanout, &check_status));
    assert_int_equal(nodes[0].parent, -1);
    assert_int_equal(nodes[0].subtree_size, size);
    for (int r = 0; r < size; r++) {
        int next = r + 1;
        for (int c = 0; c < nodes[r].child_count; c++) {
            int child = nodes[r].children[c];
            assert_int_equal(child, next);
            assert_int_equal(nodes[child].parent, r);
            assert_int_equal(tree_child_last(&nodes[r], c), child + nodes[child].subtree_size - 1);
            next = child + nodes[child].subtree_size;
        }
        assert_int_equal(next, r + nodes[r].subtree_size);
    }
    for (int r = 0; r < size; r++)
        tree_node_free(&nodes[r]);
    free(nodes);
}

TEST(subtrees_are_runs_of_ranks)
{
    static const struct shape shapes[] = {
        {16, 1, {1}},
        {16, 1, {9}},
        {2, 2, {1, 1}},
        {2, 7, {1, 2, 3, 4, 5, 6, 7}},
        {3, 5, {4, 4, 4, 4, 2}},
        {1, 4, {2, 2, 2, 2}},
        {4, 64, {1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_tree(&shapes[i]);
}

TEST(locals_report_to_their_host)
{
    static const int sizes[] = {2, 3, 1};
    struct tree_node node;
    ASSERT_OK(tree_node_init(&node, 0, sizes, 3, 16, &check_status));
    static const int children[] = {1, 2, 5};
    assert_int_equal(node.child_count, 3);
    assert_memory_equal(node.children, children, sizeof children);
    tree_node_free(&node);
    ASSERT_OK(tree_node_init(&node, 4, sizes, 3, 16, &check_status));
    assert_int_equal(node.parent, 2);
    assert_int_equal(node.child_count, 0);
    tree_node_free(&node);
}

TEST(depth_is_logarithmic)
{
    enum { HOSTS = 4096 };
    static int sizes[HOSTS];
    for (int i = 0; i < HOSTS; i++)
        sizes[i] = 1;
    int depth = 0;
    for (int rank = HOSTS - 1; rank > 0; depth++) {
        struct tree_node node;
        ASSERT_OK(tree_node_init(&node, rank, sizes, HOSTS, 16, &check_status));
        rank = node.parent;
        tree_node_free(&node);
    }
    assert_in_range(depth, 3, 4);
}

TEST(a_rank_outside_is_refused)
{
    static const int sizes[] = {2, 2};
    struct tree_node node;
    ASSERT_FAILS(tree_node_init(&node, 4, sizes, 2, 16, &check_status), HVD_INVALID_ARGUMENT, "rank 4");
}

static void check_sizes(const char *text, int size, int hosts, const int *expected)
{
    int *sizes;
    int count;
    ASSERT_OK(host_sizes_parse(text, size, &sizes, &count, &check_status));
    assert_int_equal(count, hosts);
    assert_memory_equal(sizes, expected, (size_t)hosts * sizeof *sizes);
    free(sizes);
}

TEST(host_sizes_are_read)
{
    check_sizes("", 7, 1, (const int[]){7});
    check_sizes("4,4,2", 10, 3, (const int[]){4, 4, 2});
    check_sizes("4x3,2", 14, 4, (const int[]){4, 4, 4, 2});
    check_sizes("1", 1, 1, (const int[]){1});
}

TEST(bad_host_sizes_are_refused)
{
    static const char *const texts[] = {"3",     "5",    "4,", ",4",  "2,,2",
                                        "0,4",   "-4",   "2x", "x2",  "2x0",
                                        "4 ",    "2,3",  "a",  "2x3", "99999999999999999999",
                                        "2x2x1", "4x1x", "2;2"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int *sizes;
        int hosts;
        ASSERT_FAILS(host_sizes_parse(texts[i], 4, &sizes, &hosts, &check_status), HVD_INVALID_ARGUMENT,
                     "HOROVOD_HOST_SIZES");
    }
}
