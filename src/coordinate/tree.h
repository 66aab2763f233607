/* tree.h - who reports to whom: the ranks of a host under its first rank, the first ranks of the hosts in a
 * tree of the given fan-out under rank 0. Every subtree is a run of consecutive ranks, so a whole subtree is
 * named by its ends. Pure arithmetic. */
#ifndef HVD_COORDINATE_TREE_H
#define HVD_COORDINATE_TREE_H

#include "horovod.h"

struct tree_node {
    int rank;
    int parent;    /* -1 at the root */
    int *children; /* ascending */
    int child_count;
    int subtree_size; /* this rank included */
};

/* host_sizes: ranks on each host in rank order; their sum is the number of ranks. */
hvd_code tree_node_init(struct tree_node *node, int rank, const int *host_sizes, int hosts, int fanout,
                        hvd_status *status);
/* The last rank of the subtree of children[child]; it starts with the child itself. */
int tree_child_last(const struct tree_node *node, int child);
void tree_node_free(struct tree_node *node);

/* Parses "4,4,2" or "4x16,2" (16 hosts of 4, then one of 2; empty: one host of `size`); the sum must be
 * `size`. *host_sizes is malloc'd. */
hvd_code host_sizes_parse(const char *text, int size, int **host_sizes, int *hosts, hvd_status *status);

#endif
