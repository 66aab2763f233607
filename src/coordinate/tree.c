/* tree.c - see tree.h. Hosts lie in blocks of consecutive numbers: the first host of a block leads it, the
 * rest is cut into at most `fanout` blocks of nearly equal length. No state; any thread. */
#include "coordinate/tree.h"

#include "base/status.h"

#include <errno.h>
#include <stdlib.h>

struct block {
    int first, end; /* hosts */
    int parent;     /* host that leads the block above, -1 for the whole */
};

/* Part `index` of what a block's leader hands down to `parts` children. */
static struct block block_part(struct block block, int parts, int index)
{
    /* In 64 bits, as the products are of two numbers of hosts. */
    int64_t rest = block.end - block.first - 1;
    return (struct block){block.first + 1 + (int)(rest * index / parts),
                          block.first + 1 + (int)(rest * (index + 1) / parts), block.first};
}

static int block_parts(struct block block, int fanout)
{
    int rest = block.end - block.first - 1;
    return rest < fanout ? rest : fanout;
}

/* The block that `host` leads. */
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

static int ranks_before(const int *host_sizes, int host)
{
    int ranks = 0;
    for (int i = 0; i < host; i++)
        ranks += host_sizes[i];
    return ranks;
}

static hvd_code init_leader(struct tree_node *node, const int *host_sizes, struct block block, int fanout,
                            hvd_status *status)
{
    int locals = host_sizes[block.first] - 1;
    int parts = block_parts(block, fanout);
    node->parent = block.parent < 0 ? -1 : ranks_before(host_sizes, block.parent);
    /* A leader speaks for its whole block of hosts, and comes first in it. */
    node->subtree_size = ranks_before(host_sizes, block.end) - node->rank;
    node->child_count = locals + parts;
    node->children = malloc(((size_t)node->child_count + 1) * sizeof *node->children);
    if (!node->children)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the children of rank %d", node->rank);
    /* The rest of its own host, then the leaders of the blocks below: ascending. */
    for (int i = 0; i < locals; i++)
        node->children[i] = node->rank + 1 + i;
    for (int i = 0; i < parts; i++)
        node->children[locals + i] = ranks_before(host_sizes, block_part(block, parts, i).first);
    return HVD_OK;
}

hvd_code tree_node_init(struct tree_node *node, int rank, const int *host_sizes, int hosts, int fanout,
                        hvd_status *status)
{
    int host = 0;
    int leader = 0;
    *node = (struct tree_node){.rank = rank, .subtree_size = 1};
    while (host < hosts && leader + host_sizes[host] <= rank)
        leader += host_sizes[host++];
    if (rank < 0 || host == hosts || fanout < 1)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "rank %d is on none of the %d hosts (%d ranks in all)", rank, hosts, leader);
    if (rank == leader)
        return init_leader(node, host_sizes, block_of(host, hosts, fanout), fanout, status);
    node->parent = leader;
    return HVD_OK;
}

int tree_child_last(const struct tree_node *node, int child)
{
    return (child + 1 < node->child_count ? node->children[child + 1] : node->rank + node->subtree_size) - 1;
}

void tree_node_free(struct tree_node *node)
{
    free(node->children);
    *node = (struct tree_node){.parent = -1};
}

/* ---- the setting ------------------------------------------------------------------------------------ */

/* A number in [1, limit] at *text, which moves behind it; 0 when there is none. */
static int parse_count(const char **text, int limit)
{
    char *end;
    errno = 0;
    long value = **text >= '0' && **text <= '9' ? strtol(*text, &end, 10) : 0;
    if (value < 1 || value > limit || errno)
        return 0;
    *text = end;
    return (int)value;
}

/* Counts the hosts, and writes their sizes unless `sizes` is NULL; -1 when the text is no such list or the
 * ranks are not `size`. */
static int parse_hosts(const char *text, int size, int *sizes)
{
    int hosts = 0;
    int left = size;
    do {
        int ranks = parse_count(&text, left);
        int times = 1;
        if (*text == 'x') {
            text++;
            times = parse_count(&text, left);
        }
        if (!ranks || !times || (int64_t)ranks * times > left)
            return -1;
        left -= ranks * times;
        for (int i = 0; sizes && i < times; i++)
            sizes[hosts + i] = ranks;
        hosts += times;
    } while (*text++ == ',');
    /* text[-1] is what ended the loop: the NUL, or something that belongs in no such list. */
    return text[-1] || left ? -1 : hosts;
}

hvd_code host_sizes_parse(const char *text, int size, int **host_sizes, int *hosts, hvd_status *status)
{
    int count = *text ? parse_hosts(text, size, NULL) : 1;
    if (count < 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "HOROVOD_HOST_SIZES=%s is no list of ranks per host with the sum %d; write it like "
                          "4,4,2 or 4x16,2",
                          text, size);
    int *sizes = malloc((size_t)count * sizeof *sizes);
    if (!sizes)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the sizes of %d hosts", count);
    if (*text)
        parse_hosts(text, size, sizes);
    else
        sizes[0] = size;
    *host_sizes = sizes;
    *hosts = count;
    return HVD_OK;
}
