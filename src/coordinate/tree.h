/* tree.h - who reports to whom: the ranks of a host under its first rank, the first ranks of the hosts in a
 * tree of the given fan-out under rank 0. Pure arithmetic. */
#ifndef HVD_COORDINATE_TREE_H
#define HVD_COORDINATE_TREE_H

#include "horovod.h"

struct tree_node {
    int parent;    /* -1 at the root */
    int *children; /* ascending */
    int child_count;
    int subtree_size; /* this rank included */
};

/* host_sizes: ranks on each host in rank order; their sum is the number of ranks. */
hvd_code tree_node_init(struct tree_node *node, int rank, const int *host_sizes, int hosts, int fanout,
                        hvd_status *status);
void tree_node_free(struct tree_node *node);

/* Parses "4,4,2" or "4x16,2" (empty: one host of `size`); the sum must be `size`. *host_sizes is malloc'd. */
hvd_code host_sizes_parse(const char *text, int size, int **host_sizes, int *hosts, hvd_status *status);

#endif
