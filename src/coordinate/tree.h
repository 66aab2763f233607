/* tree.h - which rank reports to which: the ranks of a host to its leader, the leaders of the hosts along a
 * tree of the given fan-out to rank 0. Members are numbered by place (base/topology.h), so that every subtree
 * is a run of consecutive numbers, named by its ends, wherever the ranks of a host are. Pure arithmetic. */
#ifndef HVD_COORDINATE_TREE_H
#define HVD_COORDINATE_TREE_H

#include "base/topology.h"

#include <stdbool.h>
#include <stddef.h>

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

/* ---- ranks -----------------------------------------------------------------------------------------------
 * A set of ranks as few ranges, for the texts of errors: bounded, so that no message grows with the
 * job. */

#define RANK_RANGE_LIMIT 8

struct rank_range {
    int first, last;
};

struct rank_set {
    int count;
    bool others;                                /* there are more, at higher ranks than the kept ones */
    struct rank_range ranges[RANK_RANGE_LIMIT]; /* ascending, not touching */
};

void rank_set_add(struct rank_set *set, int first, int last);
bool rank_set_has(const struct rank_set *set, int rank);
void rank_set_merge(struct rank_set *set, const struct rank_set *from);
/* "rank 3", "ranks 0-2, 5 and others" */
const char *rank_set_text(const struct rank_set *set, char *text, size_t capacity);

#endif
