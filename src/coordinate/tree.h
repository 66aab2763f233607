/* tree.h - the tree of reports: the ranks of a host report to its leader, and the leaders of the hosts along
 * a tree of the given fan-out to rank 0. Members are numbered by place (base/topology.h), so that every
 * subtree is a range of consecutive numbers, wherever the ranks of a host are. No state; any thread. */
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
/* Returns the last place of the subtree of children[child]; the child's own place is the first. */
int tree_child_last(const struct tree_node *node, int child);
void tree_node_free(struct tree_node *node);

/* ---- ranks -----------------------------------------------------------------------------------------------
 * A set of ranks in few ranges, for the texts of errors: bounded, so that no message grows with the job. */

#define RANK_RANGE_LIMIT 8

struct rank_range {
    int first, last;
};

struct rank_set {
    int count;
    bool others;                                /* there are more, at higher ranks than those in the ranges */
    struct rank_range ranges[RANK_RANGE_LIMIT]; /* ascending, not touching */
};

void rank_set_add(struct rank_set *set, int first, int last);
bool rank_set_has(const struct rank_set *set, int rank);
void rank_set_merge(struct rank_set *set, const struct rank_set *from);
/* Writes "rank 3", or "ranks 0-2, 5 and others". Returns `text`. */
const char *rank_set_text(const struct rank_set *set, char *text, size_t capacity);

#endif
