/* state.c - operations on the coordinator's state that several of its files share: requests, sending, and
 * when a round is complete. Under the progress lock. */
#include "coordinate/state.h"

#include "base/pool.h"
#include "base/status.h"
#include "coordinate/late.h"

void members_free(struct coordinator *c)
{
    pages_free(c->members, c->member_capacity * sizeof *c->members);
    pages_free(c->forms, c->member_capacity * sizeof *c->forms);
    c->members = NULL;
    c->forms = NULL;
    c->member_capacity = 0;
}

struct pending *entry_take_request(struct coordinator *c, struct entry *entry)
{
    struct pending *request = entry->round->mine;
    *(request->previous ? &request->previous->next : &c->oldest) = request->next;
    *(request->next ? &request->next->previous : &c->newest) = request->previous;
    entry->round->mine = NULL;
    c->pending--;
    c->eager_bytes -= request->eager_bytes;
    return request;
}

hvd_code send_out(struct coordinator *c, int place, hvd_status *status)
{
    int rank = rank_at(&c->config, place);
    if (c->out.failed)
        return status_no_memory(status);
    c->config.output.send(c->config.output.owner, rank, c->out.bytes, c->out.length);
    c->out.length = 0;
    return HVD_OK;
}

void send_to_children(struct coordinator *c, const uint8_t *bytes, size_t length)
{
    const struct tree_node *tree = &c->config.tree;
    for (int i = 0; i < tree->child_count; i++) {
        if (!c->children[i].lost)
            c->config.output.send(c->config.output.owner, rank_at(&c->config, tree->children[i]), bytes,
                                  length);
    }
}

void ready_clear(struct coordinator *c)
{
    struct root *root = &c->root;
    for (int i = 0; i < READY_QUEUES; i++)
        root->ready[i] = (struct ready_queue){.least = UINT64_MAX};
    root->ready_count = 0;
    entry_list_clear(&root->behind);
    root->oldest = INT64_MAX;
}

/* ---- rounds ------------------------------------------------------------------------------------------ */

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
    /* A rank that submitted in this round and joined afterwards has been counted already. */
    missing -= c->join && !has_own(entry);
    for (int i = 0; i < c->config.tree.child_count; i++)
        missing -= child_is_absent(c, i) && !round_has_child(entry, i);
    return missing;
}

/* Returns the only reporter that is missing: 0 is this rank, i + 1 is child i. */
static int find_missing(const struct coordinator *c, const struct entry *entry)
{
    if (!has_own(entry) && !c->join)
        return 0;
    for (int word = 0;; word++) {
        for (uint64_t rest = ~entry->round->reported[word]; rest; rest &= rest - 1) {
            int child = word * 64 + __builtin_ctzll(rest);
            if (!c->absent || !child_is_absent(c, child))
                return child + 1;
        }
    }
}

/* Returns true if a place of this subtree is excluded from the round, as far as this node decides it: for a
 * place in a subtree below, the report of that subtree has the flag. */
static bool is_excluded(const struct coordinator *c, const struct entry *entry, int place)
{
    const struct tree_node *tree = &c->config.tree;
    if (place == tree->place)
        return !has_own(entry);
    for (int i = 0; i < tree->child_count; i++) {
        if (tree->children[i] <= place && place <= tree_child_last(tree, i))
            return !round_has_child(entry, i);
    }
    return false;
}

static void join_mark_partial(const struct coordinator *c, struct entry *entry)
{
    struct round *round = entry->round;
    const struct signature_summary *summary = round->common ? &round->common->summary : NULL;
    round->partial = true;
    if (summary && operation_takes(summary->operation, ARGUMENT_root))
        round->rootless |= is_excluded(c, entry, place_of(&c->config, summary->root));
}

/* A round completes once. A round without any report is not complete, even if all ranks have joined. */
void check_complete(struct coordinator *c, struct entry *entry)
{
    struct round *round = entry->round;
    if (!round || round->phase != ROUND_COUNTING || round->missing == c->table.reporters)
        return;
    int missing = join_missing(c, entry);
    if (c->late)
        late_update(c, round, missing == 1 ? find_missing(c, entry) + 1 : 0);
    if (missing)
        return;
    round->phase = ROUND_COMPLETE;
    if (round->missing)
        join_mark_partial(c, entry);
    entry_list_push(&c->complete, entry);
}

void end_round(struct coordinator *c, struct entry *entry)
{
    table_close_round(&c->table, entry);
    table_tidy(&c->table, entry);
}
