/* tree.c - computes the tree. Hosts form blocks of consecutive numbers: the first host of a block leads it,
 * and the remaining hosts form at most `fanout` blocks of nearly equal length. No state; any thread. */
#include "coordinate/tree.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct block {
    int first, end; /* hosts */
    int parent;     /* host that leads the block above; -1: this block is the whole */
};

/* Returns block `index` of the `parts` blocks below a block's leader. */
static struct block block_part(struct block block, int parts, int index)
{
    /* 64 bits, since the products are of two numbers of hosts. */
    int64_t rest = block.end - block.first - 1;
    return (struct block){block.first + 1 + (int)(rest * index / parts),
                          block.first + 1 + (int)(rest * (index + 1) / parts), block.first};
}

static int block_parts(struct block block, int fanout)
{
    int rest = block.end - block.first - 1;
    return rest < fanout ? rest : fanout;
}

/* Returns the block that `host` leads. */
static struct block block_of(int host, int hosts, int fanout)
{
    struct block block = {0, hosts, -1};
    while (block.first != host) {
        int parts = block_parts(block, fanout);
        int index = 0;
        while (block_part(block, parts, index).end <= host)
            index++;
        block = block_part(block, parts, index);
    }
    return block;
}

static hvd_code init_leader(struct tree_node *node, struct block block, int fanout, hvd_status *status)
{
    const int *first = node->topology->first;
    int locals = first[block.first + 1] - first[block.first] - 1;
    int parts = block_parts(block, fanout);
    node->parent = block.parent < 0 ? -1 : first[block.parent];
    /* A leader reports for its whole block of hosts, and has the lowest place in it. */
    node->subtree_size = first[block.end] - node->place;
    node->child_count = locals + parts;
    node->children = malloc(((size_t)node->child_count + 1) * sizeof *node->children);
    if (!node->children)
        return status_no_memory(status);
    /* The other ranks of its host, then the leaders of the blocks below: ascending. */
    for (int i = 0; i < locals; i++)
        node->children[i] = node->place + 1 + i;
    for (int i = 0; i < parts; i++)
        node->children[locals + i] = first[block_part(block, parts, i).first];
    return HVD_OK;
}

hvd_code tree_node_init(struct tree_node *node, const struct topology *topology, int rank, int fanout,
                        hvd_status *status)
{
    int host = topology->host_of[rank];
    *node = (struct tree_node){.topology = topology,
                               .place = topology->place_of[rank],
                               .parent = topology->first[host],
                               .subtree_size = 1};
    return node->place == topology->first[host]
               ? init_leader(node, block_of(host, topology->hosts, fanout), fanout, status)
               : HVD_OK;
}

int tree_child_last(const struct tree_node *node, int child)
{
    return (child + 1 < node->child_count ? node->children[child + 1] : node->place + node->subtree_size) - 1;
}

void tree_node_free(struct tree_node *node)
{
    free(node->children);
    *node = (struct tree_node){.parent = -1};
}

/* ---- ranks ----------------------------------------------------------------------------------------- */

/* Removes the ranges that touch [*first, *last], which grows to include them; returns the index at which it
 * belongs. */
static int absorb(struct rank_set *set, int *first, int *last)
{
    int at = 0;
    while (at < set->count && set->ranges[at].last + 1 < *first)
        at++;
    int end = at;
    for (; end < set->count && set->ranges[end].first <= *last + 1; end++) {
        if (set->ranges[end].first < *first)
            *first = set->ranges[end].first;
        if (set->ranges[end].last > *last)
            *last = set->ranges[end].last;
    }
    memmove(&set->ranges[at], &set->ranges[end], (size_t)(set->count - end) * sizeof set->ranges[0]);
    set->count -= end - at;
    return at;
}

void rank_set_add(struct rank_set *set, int first, int last)
{
    int at = absorb(set, &first, &last);
    if (set->count == RANK_RANGE_LIMIT) {
        set->others = true;
        /* The lowest ranges are kept: the new one is dropped if it is above them, otherwise the highest. */
        if (at == set->count)
            return;
        set->count--;
    }
    memmove(&set->ranges[at + 1], &set->ranges[at], (size_t)(set->count - at) * sizeof set->ranges[0]);
    set->ranges[at] = (struct rank_range){first, last};
    set->count++;
}

bool rank_set_has(const struct rank_set *set, int rank)
{
    bool found = false;
    for (int i = 0; i < set->count; i++)
        found |= set->ranges[i].first <= rank && rank <= set->ranges[i].last;
    return found;
}

void rank_set_merge(struct rank_set *set, const struct rank_set *from)
{
    for (int i = 0; i < from->count; i++)
        rank_set_add(set, from->ranges[i].first, from->ranges[i].last);
    set->others |= from->others;
}

const char *rank_set_text(const struct rank_set *set, char *text, size_t capacity)
{
    bool one = set->count == 1 && set->ranges[0].first == set->ranges[0].last && !set->others;
    snprintf(text, capacity, one ? "rank " : "ranks ");
    for (int i = 0; i < set->count; i++) {
        struct rank_range range = set->ranges[i];
        append_text(text, capacity, "%s%d", i ? ", " : "", range.first);
        if (range.last > range.first)
            append_text(text, capacity, "-%d", range.last);
    }
    if (set->others)
        append_text(text, capacity, " and others");
    return text;
}
