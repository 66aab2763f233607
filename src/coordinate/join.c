/* join.c - counts joined ranks, decides what may run without them, and ends the join. Until the first join
 * this costs one comparison per name. Under the progress lock. */
#include "coordinate/join.h"

#include "base/status.h"
#include "base/types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BITS 64

/* ---- joined ranks ---------------------------------------------------------------------------------- */

static struct entry *merge(struct entry *a, struct entry *b)
{
    struct entry *merged = NULL, **end = &merged;
    while (a && b) {
        struct entry **first = a->round->number < b->round->number ? &a : &b;
        *end = *first;
        end = &(*first)->round->next;
        *first = *end;
    }
    *end = a ? a : b;
    return merged;
}

static struct entry *sort(struct entry *list)
{
    struct entry *middle = list, *end = list ? list->round->next : NULL;
    if (!end)
        return list;
    while (end && (end = end->round->next)) {
        end = end->round->next;
        middle = middle->round->next;
    }
    struct entry *rest = middle->round->next;
    middle->round->next = NULL;
    return merge(sort(list), sort(rest));
}

/* Counts one more absent reporter. Rounds that waited only for it are complete now, in the order in which
 * they were first reported: if ranks submit in one order, requests that share memory run in that order. */
static void count_absent(struct coordinator *c)
{
    size_t cursor = 0;
    struct entry_list before = c->complete;
    struct entry *entry;
    entry_list_clear(&c->complete);
    c->absent++;
    while ((entry = map_next(&c->table.names, &cursor)))
        check_complete(c, entry);
    struct entry *next = sort(c->complete.head);
    c->complete = before;
    while ((entry = next)) {
        next = entry->round->next;
        entry_list_push(&c->complete, entry);
    }
}

/* Marks the rank at the root, whose texts list the joined ranks. */
static bool mark_joined(struct coordinator *c, int rank)
{
    struct root *root = &c->root;
    if (!root->joined)
        root->joined =
            calloc(((size_t)c->config.tree.topology->size + BITS - 1) / BITS, sizeof *root->joined);
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

/* Adds the rank to the next report to the parent; the root records it. */
static hvd_code report_joined(struct coordinator *c, int rank, hvd_status *status)
{
    if (is_root(c))
        return mark_joined(c, rank) ? HVD_OK : status_no_memory(status);
    if (c->join_count == c->join_capacity) {
        int capacity = c->join_capacity ? 2 * c->join_capacity : 4;
        int *joins = realloc(c->joins, (size_t)capacity * sizeof *joins);
        if (!joins)
            return status_no_memory(status);
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
    TRY(report_joined(c, c->config.tree.place, status));
    c->join = request;
    c->pending++;
    raise(c->joined_unnamed, c->unnamed);
    count_absent(c);
    return HVD_OK;
}

hvd_code join_receive(struct coordinator *c, int child, int rank, const uint64_t *unnamed, hvd_status *status)
{
    /* Only the root has a bit per rank; the others detect one too many. */
    if (child_is_absent(c, child) || join_has(c, rank))
        return status_set(status, HVD_REFUSED, "a second join");
    TRY(report_joined(c, rank, status));
    raise(c->joined_unnamed, unnamed);
    c->children[child].joined++;
    if (child_is_absent(c, child))
        count_absent(c);
    return HVD_OK;
}

/* ---- operations during a join ----------------------------------------------------------------------- */

static void joined_text(const struct coordinator *c, char *text, size_t capacity)
{
    struct rank_set ranks = {0};
    for (int place = 0; place < c->config.tree.topology->size; place++) {
        if (join_has(c, place))
            rank_set_add(&ranks, name_at(&c->config, place), name_at(&c->config, place));
    }
    rank_set_text(&ranks, text, capacity);
}

/* "allreduce and barrier" */
static void always_text(char *text, size_t capacity)
{
    *text = '\0';
    for (int i = 0; i < OPERATION_NUMBERS; i++) {
        if (operation_known(i) && operation_table[i].absence == ABSENCE_always)
            append_text(text, capacity, "%s%s", *text ? " and " : "", operation_table[i].name);
    }
}

bool join_permits(const struct coordinator *c, const struct entry *entry, char *text, size_t capacity)
{
    const struct signature_summary *summary = &entry->round->common->summary;
    enum absence absence = operation_table[summary->operation].absence;
    if (!entry->round->partial || absence == ABSENCE_always ||
        (absence == ABSENCE_join_all && c->config.join_all && !entry->round->rootless))
        return true;
    char ranks[256], always[64], unless[160], title[REQUEST_NAME_LIMIT];
    joined_text(c, ranks, sizeof ranks);
    always_text(always, sizeof always);
    snprintf(unless, sizeof unless, "only %s run meanwhile, unless HOROVOD_JOIN=all is set", always);
    const char *advice = absence == ABSENCE_never                       ? "it needs all ranks"
                         : entry->round->rootless && c->config.join_all ? "its root is one of them"
                                                                        : unless;
    snprintf(text, capacity, "%.200s can't run before all ranks have joined: %.250s did so without it; %s",
             entry_title(entry, title, sizeof title), ranks, advice);
    return false;
}

void join_exclude(const struct coordinator *c, struct entry *entry)
{
    struct variants *variants = entry->round->variants;
    for (int i = 0; entry->round->partial && i < variants->count; i++) {
        const struct rank_set *counted = &variants->list[i].ranks;
        struct rank_set submitters = {.others = counted->others};
        for (int r = 0; r < counted->count; r++) {
            for (int place = counted->ranges[r].first; place <= counted->ranges[r].last; place++) {
                if (!join_has(c, place))
                    rank_set_add(&submitters, place, place);
            }
        }
        if (submitters.count) /* otherwise one of them submitted it and joined afterwards */
            variants->list[i].ranks = submitters;
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
        memset(c->root.joined, 0,
               ((size_t)c->config.tree.topology->size + BITS - 1) / BITS * sizeof *c->root.joined);
    raise(c->unnamed, unnamed);
    if (request)
        c->config.output.joined(c->config.output.owner, request, name_at(&c->config, last));
}
