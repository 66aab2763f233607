/* rows.c - which numbers of rows a report or decision has, and what a node makes of those of its subtree.
 * Under the progress lock. */
#include "coordinate/rows.h"

#include "base/status.h"
#include "base/types.h"

/* Bytes of the list of all ranks up to which it travels. At a fan-out of 16 the root then sends no more than
 * the 64 KiB that a link of 10 Gbit/s moves in the time of a round trip. A subtree has its share of them, so
 * that ranks do not send what the root will drop; a few bytes more let single ranks differ. */
#define LIST_LIMIT ((size_t)4 << 10)
#define LIST_LEAST ((size_t)16)

/* Returns how many numbers a rank has; 0: the operation counts no rows. */
static uint64_t numbers_per_rank(const struct coordinator *c, const struct form *form)
{
    switch (operation_table[form->summary.operation].result) {
    case RESULT_joined:
        return (uint64_t)form->summary.tensors;
    case RESULT_exchanged:
        return (uint64_t)c->config.tree.topology->size;
    default:
        return 0;
    }
}

static int places_of(const struct tree_node *tree, int child)
{
    return tree_child_last(tree, child) - tree->children[child] + 1;
}

/* ---- reports of children ------------------------------------------------------------------------------- */

static hvd_code store(struct coordinator *c, int child, struct round *round, const struct report *report,
                      hvd_status *status)
{
    size_t bytes = round_rows_bytes(&c->table);
    if (!round->rows) {
        round->rows = pool_alloc(&c->table.pool, bytes);
        if (!round->rows)
            return status_no_memory(status);
        memset(round->rows, 0, bytes);
    }
    round->rows[child] = runs_create(report->rows, report->rows_bytes);
    return round->rows[child] ? HVD_OK : status_no_memory(status);
}

hvd_code rows_receive(struct coordinator *c, int child, struct entry *entry, const struct report *report,
                      const struct agreement *agreement, hvd_status *status)
{
    struct round *round = entry->round;
    if (!round->common) /* the forms differ: nothing will run */
        return HVD_OK;
    uint64_t numbers = numbers_per_rank(c, round->common);
    if (!numbers)
        return report->rows ? status_set(status, HVD_REFUSED, "numbers of rows for an operation without any")
                            : HVD_OK;
    if (report->rows && report->rows_bytes) {
        if (!runs_check(report->rows, report->rows_bytes,
                        numbers * (uint64_t)places_of(&c->config.tree, child)))
            return status_set(status, HVD_REFUSED, "malformed numbers of rows");
        return store(c, child, round, report, status);
    }
    const struct runs *agreed = agreement && !report->rows ? agreement->rows : NULL;
    /* All reports of a round that refer to agreed numbers mean the same ones. */
    if (!agreed || (round->agreed_rows && round->agreed_rows != agreed))
        round->rows_unknown = true;
    else if (!round->agreed_rows)
        round->agreed_rows = runs_share(agreement->rows);
    return HVD_OK;
}

/* ---- the subtree --------------------------------------------------------------------------------------- */

static struct runs_reader reader_of(const struct runs *runs)
{
    return runs ? runs_reader_of(runs->bytes, runs->length) : (struct runs_reader){0};
}

/* Returns true if nothing differs from the agreed numbers, as far as it is seen without listing all. */
static bool is_as_agreed(const struct coordinator *c, const struct round *round, uint64_t numbers,
                         const struct runs *agreed)
{
    const struct coordinator_output *output = &c->config.output;
    if (!agreed || round->rows || round->missing || (round->agreed_rows && round->agreed_rows != agreed))
        return false;
    struct runs_reader reader = reader_of(agreed);
    runs_skip(&reader, numbers * (uint64_t)c->config.tree.place);
    for (uint64_t i = 0; i < numbers; i++) {
        if (runs_get(&reader) != output->rows(output->owner, round->mine, (int)i))
            return false;
    }
    return true;
}

/* Lists the numbers by place: those of this rank, then those of each child's subtree. A rank that has joined
 * without submitting the request has no rows. Stops once the list is longer than `limit`. */
static void list_rows(struct coordinator *c, const struct entry *entry, uint64_t numbers, size_t limit)
{
    const struct coordinator_output *output = &c->config.output;
    const struct tree_node *tree = &c->config.tree;
    const struct round *round = entry->round;
    struct runs_writer writer = {.wire = &c->rows};
    struct runs_reader agreed = reader_of(round->agreed_rows);
    runs_skip(&agreed, numbers * (uint64_t)(tree->place + 1));
    for (uint64_t i = 0; i < numbers && c->rows.length <= limit; i++)
        runs_put(&writer, round->mine ? output->rows(output->owner, round->mine, (int)i) : 0, 1);
    for (int child = 0; child < tree->child_count && c->rows.length <= limit; child++) {
        uint64_t count = numbers * (uint64_t)places_of(tree, child);
        const struct runs *sent = round->rows ? round->rows[child] : NULL;
        struct runs_reader list = reader_of(sent);
        if (!sent && round_has_child(entry, child)) {
            runs_copy(&writer, &agreed, count);
            continue;
        }
        if (sent)
            runs_copy(&writer, &list, count);
        else
            runs_put(&writer, 0, count);
        runs_skip(&agreed, count);
    }
    runs_end(&writer);
}

/* Returns true if the list is this subtree's part of the agreed numbers. */
static bool is_part_of(const struct coordinator *c, const struct runs *agreed, uint64_t numbers)
{
    const struct tree_node *tree = &c->config.tree;
    struct runs_reader reader = reader_of(agreed);
    runs_skip(&reader, numbers * (uint64_t)tree->place);
    return runs_equal(reader, runs_reader_of(c->rows.bytes, c->rows.length),
                      numbers * (uint64_t)tree->subtree_size);
}

const struct wire_writer *rows_find(struct coordinator *c, struct entry *entry, const struct runs *agreed)
{
    const struct tree_node *tree = &c->config.tree;
    struct round *round = entry->round;
    uint64_t numbers = numbers_per_rank(c, round->common);
    size_t limit = LIST_LIMIT * (size_t)tree->subtree_size / (size_t)tree->topology->size + LIST_LEAST;
    if (!numbers || (!round->rows_unknown && is_as_agreed(c, round, numbers, agreed)))
        return NULL;
    c->rows.length = 0;
    if (!round->rows_unknown)
        list_rows(c, entry, numbers, limit);
    if (c->rows.failed || c->rows.length > limit) {
        round->rows_unknown = true;
        c->rows.failed = false;
        c->rows.length = 0;
    }
    bool as_agreed = round->rows_unknown ? !agreed : agreed && is_part_of(c, agreed, numbers);
    return as_agreed ? NULL : &c->rows;
}

/* ---- decisions ----------------------------------------------------------------------------------------- */

hvd_code rows_agree(struct coordinator *c, struct agreement *agreement, const struct decision *decision,
                    hvd_status *status)
{
    uint64_t count = numbers_per_rank(c, agreement->form) * (uint64_t)c->config.tree.topology->size;
    struct runs *rows = NULL;
    if (decision->rows_bytes) {
        if (!count || !runs_check(decision->rows, decision->rows_bytes, count))
            return status_set(status, HVD_REFUSED, "malformed numbers of rows");
        rows = runs_create(decision->rows, decision->rows_bytes);
        if (!rows)
            return status_no_memory(status);
    }
    runs_release(agreement->rows);
    agreement->rows = rows;
    return HVD_OK;
}
