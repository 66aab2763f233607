/* decide.c - makes the root's decisions: they are written as a message, sent, and then carried out from its
 * bytes, here as on every other rank (docs/coordination.md, "Batches"). Under the progress lock. */
#include "coordinate/decide.h"

#include "base/pool.h"
#include "base/status.h"
#include "base/types.h"
#include "coordinate/apply.h"
#include "coordinate/eager.h"
#include "coordinate/findings.h"
#include "coordinate/join.h"
#include "coordinate/mismatch.h"
#include "coordinate/rows.h"

#include <stdlib.h>
#include <string.h>

static void begin_message(struct coordinator *c)
{
    c->out.length = 0;
    wire_put_u8(&c->out, MESSAGE_DECISIONS);
    wire_put_u64(&c->out, c->seen + 1);
    c->root.unpublished = 0;
}

static hvd_code publish(struct coordinator *c, hvd_status *status)
{
    if (!c->root.unpublished)
        return HVD_OK;
    if (c->out.failed)
        return status_no_memory(status);
    send_to_children(c, c->out.bytes, c->out.length);
    struct wire_reader reader = wire_reader_of(c->out.bytes + 1, c->out.length - 1);
    hvd_code code = apply_decisions(c, &reader, status);
    begin_message(c);
    return code;
}

/* Called after each decision: returns its number, and sends the message once it is long. */
static hvd_code decided(struct coordinator *c, uint64_t *number, hvd_status *status)
{
    c->root.unpublished++;
    *number = c->seen + (uint64_t)c->root.unpublished;
    return c->out.length < MESSAGE_SOFT_LIMIT ? HVD_OK : publish(c, status);
}

/* Returns the summary of an entry that is ready. */
static const struct signature_summary *summary_of(const struct entry *entry)
{
    return &entry->round->common->summary;
}

/* The larger priority runs first; of equal ones, the one that was ready first. */
static bool runs_before(const struct entry *a, const struct entry *b)
{
    int32_t first = summary_of(a)->priority, second = summary_of(b)->priority;
    return first != second ? first > second : a->round->place < b->round->place;
}

/* ---- ready entries ----------------------------------------------------------------------------------- */

/* Inserts the entry in the order in which entries run. Priorities are few, or ascend, so its place is after
 * the last entry or near the head. */
static void insert(struct entry_list *list, struct entry *entry)
{
    struct entry **at = &list->head;
    if (!list->head || !runs_before(entry, list->tail)) {
        entry_list_push(list, entry);
        return;
    }
    while (!runs_before(entry, *at))
        at = &(*at)->round->next;
    entry->round->next = *at;
    *at = entry;
    list->count++;
}

/* A rank that has joined contributes the identity of the reduction, which must not be scaled; all members of
 * a batch have one factor. */
static bool runs_alone(const struct coordinator *c, const struct entry *entry)
{
    const struct signature_summary *summary = summary_of(entry);
    return !summary->may_fuse || (c->config.groups_alone && summary->grouped) ||
           (c->config.adasum_alone && summary->reduction == HVD_ADASUM) ||
           (summary->prescaled && entry->round->partial) || entry->round->apart;
}

static void enqueue(struct coordinator *c, struct entry *entry)
{
    struct root *root = &c->root;
    int64_t since = entry->round->ready_since;
    uint64_t bytes = summary_of(entry)->bytes;
    int index = (runs_alone(c, entry) ? READY_ALONE : 0) | (is_short(bytes) ? READY_SHORT : 0);
    struct ready_queue *queue = &root->ready[index];
    insert(&queue->list, entry);
    queue->least = bytes < queue->least ? bytes : queue->least;
    root->oldest = since < root->oldest ? since : root->oldest;
    root->ready_count++;
}

/* An `apart` entry waits until all entries that were ready before it have been decided, whatever their
 * priority: if all ranks submit in one order, accesses to shared memory are in that order. Later entries wait
 * with it. */
static void add_ready(struct coordinator *c, struct entry *entry, int64_t now)
{
    struct root *root = &c->root;
    entry->round->ready_since = now;
    entry->round->place = ++root->places;
    if (root->behind.head || (entry->round->apart && root->ready_count))
        entry_list_push(&root->behind, entry);
    else
        enqueue(c, entry);
}

/* Once the queues are empty, moves the `apart` entry into them, and those after it up to the next one. */
static void move_up(struct coordinator *c)
{
    struct entry *entry = c->root.ready_count ? NULL : c->root.behind.head;
    while (entry && !(entry->round->apart && c->root.ready_count)) {
        struct entry *next = entry->round->next;
        enqueue(c, entry);
        c->root.behind.head = entry = next;
        c->root.behind.count--;
    }
}

/* Returns the queue whose head may start now and runs first; -1: all must wait. */
static int find_next(const struct coordinator *c)
{
    bool short_may = !c->short_running;
    /* `running` counts the short one as well. */
    bool long_may = c->running - !short_may < LONG_BATCHES_IN_FLIGHT;
    const struct entry *first = NULL;
    int found = -1;
    for (int i = 0; i < READY_QUEUES; i++) {
        const struct entry *head = c->root.ready[i].list.head;
        if (!head || !(i & READY_SHORT ? short_may : long_may) || (first && runs_before(first, head)))
            continue;
        first = head;
        found = i;
    }
    return found;
}

/* ---- judging ----------------------------------------------------------------------------------------- */

/* Finds the id under which an entry can be a member of a batch; a new one if the agreed form is another. */
static hvd_code agree_on_id(struct coordinator *c, struct entry *entry, hvd_status *status)
{
    const struct agreement *agreed = entry->agreed;
    uint64_t *id = &entry->round->id;
    if (agreed && agreed->form == entry->round->common) {
        *id = agreed->id;
        return HVD_OK;
    }
    if (agreed) {
        decision_put_evict(&c->out, agreed->id);
        TRY(decided(c, id, status));
    }
    decision_put_assign(&c->out, entry, entry->round->common);
    return decided(c, id, status);
}

/* Decides the numbers of rows of a member of the next batch, if they differ from those of its last one. */
static hvd_code agree_on_rows(struct coordinator *c, struct entry *entry, hvd_status *status)
{
    uint64_t number;
    const struct agreement *agreed = entry->agreed;
    /* A new id is not in the table before its decision is carried out. */
    bool is_known = agreed && agreed->id == entry->round->id;
    const struct wire_writer *rows = rows_find(c, entry, is_known ? agreed->rows : NULL);
    if (!rows)
        return HVD_OK;
    decision_put_rows(&c->out, entry->round->id, rows);
    return decided(c, &number, status);
}

/* Decided at once, concurrently with any batches: the result moves no more data. */
static hvd_code decide_result(struct coordinator *c, struct entry *entry, hvd_status *status)
{
    uint64_t number;
    TRY(agree_on_id(c, entry, status));
    decision_put_result(&c->out, entry, eager_reduce(c, entry));
    return decided(c, &number, status);
}

static hvd_code judge(struct coordinator *c, struct entry *entry, int64_t now, hvd_status *status)
{
    uint64_t number;
    char text[HVD_STATUS_TEXT];
    const struct coordinator_output *output = &c->config.output;
    if (output->negotiated)
        output->negotiated(output->owner, now - entry->round->since);
    entry->round->phase = ROUND_REPORTED;
    if (entry->round->variants) {
        join_exclude(c, entry);
        mismatch_text(&c->config, entry, text, sizeof text);
    }
    if (entry->round->variants || !join_permits(c, entry, text, sizeof text)) {
        decision_put_fail(&c->out, entry, text);
        return decided(c, &number, status);
    }
    if (eager_is_whole(c, entry))
        return decide_result(c, entry, status);
    add_ready(c, entry, now);
    return HVD_OK;
}

static hvd_code judge_complete(struct coordinator *c, int64_t now, hvd_status *status)
{
    struct entry *entry = c->complete.head;
    entry_list_clear(&c->complete);
    while (entry) {
        struct entry *next = entry->round->next;
        TRY(judge(c, entry, now, status));
        entry = next;
    }
    return HVD_OK;
}

/* ---- batches ----------------------------------------------------------------------------------------- */

/* A position in a queue while a batch is picked. */
struct cursor {
    struct ready_queue *queue; /* NULL: no queue */
    struct entry *previous;    /* NULL: the position is the head */
    uint64_t least;            /* smallest entry that was passed over, in bytes */
};

static struct entry *entry_at(const struct cursor *cursor)
{
    if (!cursor->queue)
        return NULL;
    return cursor->previous ? cursor->previous->round->next : cursor->queue->list.head;
}

static void pass_over(struct cursor *cursor)
{
    cursor->previous = entry_at(cursor);
    uint64_t bytes = summary_of(cursor->previous)->bytes;
    cursor->least = bytes < cursor->least ? bytes : cursor->least;
}

/* Moves the entry to the members; returns its bytes. */
static uint64_t take_at(struct root *root, struct cursor *cursor)
{
    struct entry_list *list = &cursor->queue->list;
    struct entry *entry = entry_at(cursor);
    *(cursor->previous ? &cursor->previous->round->next : &list->head) = entry->round->next;
    if (list->tail == entry)
        list->tail = cursor->previous;
    list->count--;
    root->ready_count--;
    entry_list_push(&root->members, entry);
    return summary_of(entry)->bytes;
}

/* Returns the size of the smallest entry that is left in a queue, or a lower bound of it. */
static uint64_t least_of(struct cursor *cursor)
{
    if (!cursor->queue)
        return UINT64_MAX;
    if (!entry_at(cursor)) /* all its entries were passed over */
        cursor->queue->least = cursor->least;
    return cursor->queue->least;
}

/* Takes entries that fit after the first member, in their order. Stops when no entry can fit, so that many
 * requests of one size are not visited again for every batch. */
static uint64_t fill_batch(struct root *root, struct cursor cursors[2], uint64_t limit, uint64_t bytes)
{
    const struct signature_summary *head = summary_of(root->members.head);
    while (bytes <= limit && root->members.count < BATCH_LIMIT) {
        uint64_t least[] = {least_of(&cursors[0]), least_of(&cursors[1])};
        struct entry *a = entry_at(&cursors[0]), *b = entry_at(&cursors[1]);
        if ((!a && !b) || (limit - bytes < least[0] && limit - bytes < least[1]))
            break;
        struct cursor *cursor = &cursors[!a || (b && runs_before(b, a))];
        const struct signature_summary *summary = summary_of(entry_at(cursor));
        bool fits = summary->bytes <= limit - bytes &&
                    memcmp(head->fusion_key, summary->fusion_key, FUSION_KEY_LENGTH) == 0;
        if (fits)
            bytes += take_at(root, cursor);
        else
            pass_over(cursor);
    }
    return bytes;
}

/* Moves the members of the next batch, the head of this queue and entries that fit after it, to `members`. A
 * short batch stays short. Returns their bytes. */
static uint64_t pick_members(struct coordinator *c, int index)
{
    struct root *root = &c->root;
    struct ready_queue *queue = &root->ready[index];
    const struct entry *next = queue->list.head;
    struct cursor cursors[] = {{.queue = queue, .least = UINT64_MAX}, {.least = UINT64_MAX}};
    /* With 0 no requests are fused, not even empty ones. */
    uint64_t limit = c->config.fusion_threshold;
    if (index & READY_SHORT && limit > SHORT_BYTES)
        limit = SHORT_BYTES;
    entry_list_clear(&root->members);
    uint64_t bytes = take_at(root, &cursors[0]);
    if (index & READY_ALONE || !limit)
        return bytes;
    if (!(index & READY_SHORT))
        cursors[1].queue = &root->ready[READY_SHORT];
    /* Short entries that would run before the head wait until another short batch may start. */
    while (entry_at(&cursors[1]) && runs_before(entry_at(&cursors[1]), next))
        pass_over(&cursors[1]);
    return fill_batch(root, cursors, limit, bytes);
}

static hvd_code decide_batch(struct coordinator *c, int queue, hvd_status *status)
{
    const struct entry_list *members = &c->root.members;
    uint64_t bytes = pick_members(c, queue);
    const struct signature_summary *first = summary_of(members->head);
    for (struct entry *entry = members->head; entry; entry = entry->round->next) {
        /* May publish earlier decisions, but not this batch, so that the entries stay as they are. */
        TRY(agree_on_id(c, entry, status));
        TRY(agree_on_rows(c, entry, status));
    }
    const struct coordinator_output *output = &c->config.output;
    struct choice choice = output->choose(output->owner, first, bytes, members->head->round->rows_unknown);
    decision_put_batch(&c->out, choice, members->head, (int)members->count);
    c->root.unpublished++;
    return publish(c, status);
}

/* Stops at the first entry that is as old as any can be. */
static int64_t oldest_ready(const struct root *root)
{
    int64_t oldest = INT64_MAX;
    for (int i = 0; i < READY_QUEUES; i++) {
        const struct entry *entry = root->ready[i].list.head;
        for (; entry && oldest > root->oldest; entry = entry->round->next) {
            if (entry->round->ready_since < oldest)
                oldest = entry->round->ready_since;
        }
    }
    return oldest;
}

static bool cycle_is_over(struct coordinator *c, int64_t now)
{
    if (!c->config.cycle_time)
        return true;
    c->root.oldest = oldest_ready(&c->root);
    return now - c->root.oldest >= c->config.cycle_time;
}

int64_t decide_next(const struct coordinator *c)
{
    if (!c->config.cycle_time || find_next(c) < 0)
        return INT64_MAX;
    return oldest_ready(&c->root) + c->config.cycle_time;
}

/* ---- the cache --------------------------------------------------------------------------------------- */

/* Evicts the least recently used agreements, except those that a rank is requesting just now. */
static hvd_code decide_evictions(struct coordinator *c, hvd_status *status)
{
    uint32_t count = c->table.recent.count;
    uint32_t excess = count > c->config.cache_capacity ? count - c->config.cache_capacity : 0;
    struct agreement *agreement = c->table.recent.tail;
    while (excess && agreement) {
        struct agreement *newer = agreement->previous;
        /* No rank is known to have submitted it in the present round; a submission that crosses the eviction
         * is read by the retired id. */
        if (!agreement->entry->round) {
            uint64_t number;
            decision_put_evict(&c->out, agreement->id);
            excess--;
            TRY(decided(c, &number, status));
        }
        agreement = newer;
    }
    return publish(c, status);
}

hvd_code decide(struct coordinator *c, int64_t now, hvd_status *status)
{
    uint64_t number;
    begin_message(c);
    if (c->findings.length) { /* before requests that may depend on what it was found in */
        findings_decide(c);
        TRY(decided(c, &number, status));
    }
    TRY(judge_complete(c, now, status));
    for (int i = 0; i < c->turn_count; i++) {
        decision_put_turn(&c->out, c->turns[i]);
        TRY(decided(c, &number, status));
    }
    c->turn_count = 0;
    if (c->leaver >= 0) {
        decision_put_close(&c->out, c->leaver);
        TRY(decided(c, &number, status));
    }
    TRY(publish(c, status));
    /* If a close was decided above it has been carried out by now: nothing more starts. */
    if (c->state != STATE_OPEN)
        return HVD_OK;
    move_up(c);
    for (int queue; (queue = find_next(c)) >= 0 && cycle_is_over(c, now);) {
        TRY(decide_batch(c, queue, status));
        move_up(c);
    }
    if (join_is_over(c)) {
        decision_put_joined(&c->out, c->root.last_joined, c->joined_unnamed);
        c->root.unpublished++;
        TRY(publish(c, status));
    }
    return decide_evictions(c, status);
}
