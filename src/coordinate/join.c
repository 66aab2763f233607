/* join.c - see join.h. As long as nobody has joined, all this costs one comparison. */
#include "coordinate/join.h"

#include "base/status.h"
#include "base/types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BITS 64

/* ---- who has joined -------------------------------------------------------------------------------- */

bool child_is_absent(const struct coordinator *c, int child)
{
    const struct tree_node *tree = &c->config.tree;
    return c->children[child].joined == tree_child_last(tree, child) - tree->children[child] + 1;
}

static bool has_own(const struct entry *entry)
{
    return entry->round && entry->round->own;
}

int join_missing(const struct coordinator *c, const struct entry *entry)
{
    int missing = entry->round ? entry->round->missing : c->table.reporters;
    if (!missing || !c->absent)
        return missing;
    /* Who asked in this round and joined then has been counted already. */
    missing -= c->join && !has_own(entry);
    for (int i = 0; i < c->config.tree.child_count; i++)
        missing -= child_is_absent(c, i) && !round_has_child(entry, i);
    return missing;
}

/* Whether a rank of this subtree is left out; one further down told so itself. */
static bool is_left_out(const struct coordinator *c, const struct entry *entry, int rank)
{
    const struct tree_node *tree = &c->config.tree;
    if (rank == tree->rank)
        return !has_own(entry);
    for (int i = 0; i < tree->child_count; i++) {
        if (tree->children[i] <= rank && rank <= tree_child_last(tree, i))
            return !round_has_child(entry, i);
    }
    return false;
}

void join_note_absent(const struct coordinator *c, struct entry *entry)
{
    struct round *round = entry->round;
    const struct signature_summary *summary = round->common ? &round->common->summary : NULL;
    round->partial = true;
    if (summary && summary->operation == HVD_BROADCAST)
        round->rootless |= is_left_out(c, entry, summary->root);
}

/* Rounds that waited for this reporter only are complete now. */
static void note_absent(struct coordinator *c)
{
    size_t cursor = 0;
    struct entry *entry;
    c->absent++;
    while ((entry = map_next(&c->table.names, &cursor)))
        note_if_complete(c, entry);
}

/* At the root, which names the joined ones. */
static bool mark_joined(struct coordinator *c, int rank)
{
    struct root *root = &c->root;
    if (!root->joined)
        root->joined = calloc(((size_t)c->config.size + BITS - 1) / BITS, sizeof *root->joined);
    if (!root->joined)
        return false;
    root->joined[rank / BITS] |= UINT64_C(1) << (rank % BITS);
    root->last_joined = rank;
    return true;
}

bool join_has(const struct coordinator *c, int rank)
{
    return c->root.joined && (c->root.joined[rank / BITS] >> (rank % BITS) & 1);
}

/* To be told to the parent; the root keeps it. */
static hvd_code pass_on(struct coordinator *c, int rank, hvd_status *status)
{
    if (is_root(c))
        return mark_joined(c, rank) ? HVD_OK
                                    : status_set(status, HVD_OUT_OF_MEMORY, "out of memory for a join");
    if (c->join_count == c->join_capacity) {
        int capacity = c->join_capacity ? 2 * c->join_capacity : 4;
        int *joins = realloc(c->joins, (size_t)capacity * sizeof *joins);
        if (!joins)
            return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for a join");
        c->joins = joins;
        c->join_capacity = capacity;
    }
    c->joins[c->join_count++] = rank;
    return HVD_OK;
}

static void raise(uint64_t *counters, const uint64_t *to)
{
    for (int i = 0; i < UNNAMED_KINDS; i++)
        counters[i] = to[i] > counters[i] ? to[i] : counters[i];
}

hvd_code join_begin(struct coordinator *c, struct pending *request, hvd_status *status)
{
    hvd_code code = pass_on(c, c->config.rank, status);
    if (code)
        return code;
    c->join = request;
    c->pending++;
    raise(c->joined_unnamed, c->unnamed);
    note_absent(c);
    return HVD_OK;
}

hvd_code join_receive(struct coordinator *c, int child, int rank, const uint64_t *unnamed, hvd_status *status)
{
    /* The root alone knows ranks; the others notice one too many. */
    if (child_is_absent(c, child) || join_has(c, rank))
        return status_set(status, HVD_REFUSED, "a second join");
    hvd_code code = pass_on(c, rank, status);
    if (code)
        return code;
    raise(c->joined_unnamed, unnamed);
    c->children[child].joined++;
    if (child_is_absent(c, child))
        note_absent(c);
    return HVD_OK;
}

/* ---- what may run meanwhile ------------------------------------------------------------------------ */

static void joined_text(const struct coordinator *c, char *text, size_t capacity)
{
    struct rank_set ranks = {0};
    for (int rank = 0; rank < c->config.size; rank++) {
        if (join_has(c, rank))
            rank_set_add(&ranks, rank_name(&c->config, rank), rank_name(&c->config, rank));
    }
    rank_set_text(&ranks, text, capacity);
}

bool join_permits(const struct coordinator *c, const struct entry *entry, char *text, size_t capacity)
{
    const struct signature_summary *summary = &entry->round->common->summary;
    enum absence absence = operation_absence(summary->operation);
    if (!entry->round->partial || absence == ABSENCE_always ||
        (absence == ABSENCE_asked && c->config.join_all && !entry->round->rootless))
        return true;
    char ranks[256];
    joined_text(c, ranks, sizeof ranks);
    const char *advice = absence == ABSENCE_never ? "it needs all ranks"
                         : entry->round->rootless && c->config.join_all
                             ? "its root is one of them"
                             : "only allreduce and barrier run meanwhile, unless HOROVOD_JOIN=all is set";
    snprintf(text, capacity, "%.200s can't run before all ranks have joined: %.250s did so without it; %s",
             entry->name, ranks, advice);
    return false;
}

void join_leave_out(const struct coordinator *c, struct entry *entry)
{
    struct variants *variants = entry->round->variants;
    for (int i = 0; entry->round->partial && i < variants->count; i++) {
        const struct rank_set *counted = &variants->list[i].ranks;
        struct rank_set asked = {.others = counted->others};
        for (int r = 0; r < counted->count; r++) {
            for (int rank = counted->ranges[r].first; rank <= counted->ranges[r].last; rank++) {
                if (!join_has(c, rank))
                    rank_set_add(&asked, rank, rank);
            }
        }
        if (asked.count) /* else one of them asked, and joined then */
            variants->list[i].ranks = asked;
    }
}

/* ---- the end --------------------------------------------------------------------------------------- */

bool join_is_over(const struct coordinator *c)
{
    return c->absent == c->table.reporters && !c->root.ready_count && !c->complete.count;
}

void join_end(struct coordinator *c, int last, const uint64_t *unnamed)
{
    struct pending *request = c->join;
    c->join = NULL;
    c->absent = 0;
    c->pending -= request != NULL;
    for (int i = 0; i < c->config.tree.child_count; i++)
        c->children[i].joined = 0;
    if (c->root.joined)
        memset(c->root.joined, 0, ((size_t)c->config.size + BITS - 1) / BITS * sizeof *c->root.joined);
    raise(c->unnamed, unnamed);
    if (request)
        c->config.output.joined(c->config.output.owner, request, rank_name(&c->config, last));
}
