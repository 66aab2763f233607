/* tree.h - which rank reports to which: the ranks of a host to its leader, the leaders of the hosts along a
 * tree of the given fan-out to rank 0. Members are numbered by place (base/topology.h), so that every subtree
 * is a run of consecutive numbers, named by its ends, wherever the ranks of a host are. Pure arithmetic. */
#ifndef HVD_COORDINATE_TREE_H
#define HVD_COORDINATE_TREE_H

#include "base/topology.h"

struct tree_node {
    const struct topology *topology; /* of the process set; outlives the node */
    int place;
    int parent;    /* -1 at the root */
    int *children; /* ascending */
    int child_count;
    int subtree_size; /* this rank included */
};

hvd_code tree_node_init(struct tree_node *node, const struct topology *topology, int rank, int fanout,
                        hvd_status *status);
/* The last place of the subtree of children[child]; it starts with the child itself. */
int tree_child_last(const struct tree_node *node, int child);
void tree_node_free(struct tree_node *node);

#endif
