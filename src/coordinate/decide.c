/* decide.c - the root's part: judges requests that every rank has submitted, composes batches, keeps the
 * cache within its capacity. Decisions are written as a message, sent, and then carried out from it here as
 * everywhere else (docs/coordination.md, "Batches"). Driver only. */
#include "coordinate/join.h"

#include "base/pages.h"
#include "base/status.h"
#include "base/types.h"

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
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the root's decisions");
    send_to_children(c, c->out.bytes, c->out.length);
    struct wire_reader reader = wire_reader_of(c->out.bytes + 1, c->out.length - 1);
    hvd_code code = apply_decisions(c, &reader, status);
    begin_message(c);
    return code;
}

/* After each decision: its number; the message goes out once it is long. */
static hvd_code decided(struct coordinator *c, uint64_t *number, hvd_status *status)
{
    c->root.unpublished++;
    *number = c->seen + (uint64_t)c->root.unpublished;
    return c->out.length < MESSAGE_SOFT_LIMIT ? HVD_OK : publish(c, status);
}

/* Of an entry that is ready. */
static const struct signature_summary *summary_of(const struct entry *entry)
{
    return &entry->round->common->summary;
}

static int32_t priority_of(const struct entry *entry)
{
    return summary_of(entry)->priority;
}

/* ---- judging ----------------------------------------------------------------------------------------- */

static hvd_code judge(struct coordinator *c, struct entry *entry, int64_t now, hvd_status *status)
{
    struct root *root = &c->root;
    uint64_t number;
    char text[HVD_STATUS_TEXT];
    entry->round->told = true;
    if (entry->round->variants) {
        join_leave_out(c, entry);
        mismatch_text(entry, c->config.names, text, sizeof text);
    }
    if (entry->round->variants || !join_permits(c, entry, text, sizeof text)) {
        decision_put_fail(&c->out, entry, text);
        return decided(c, &number, status);
    }
    entry->round->ready_since = now;
    if (root->ready.head)
        root->sorted &= priority_of(entry) <= priority_of(root->ready.tail);
    entry_list_push(&root->ready, entry);
    return HVD_OK;
}

static hvd_code judge_complete(struct coordinator *c, int64_t now, hvd_status *status)
{
    hvd_code code = HVD_OK;
    struct entry *entry = c->complete.head;
    entry_list_clear(&c->complete);
    while (!code && entry) {
        struct entry *next = entry->round->next;
        code = judge(c, entry, now, status);
        entry = next;
    }
    return code;
}

/* ---- batches ----------------------------------------------------------------------------------------- */

/* Of two lists in order; among equals those of `a` come first. */
static struct entry *merge(struct entry *a, struct entry *b)
{
    struct entry *merged, **end = &merged;
    while (a && b) {
        struct entry **first = priority_of(b) > priority_of(a) ? &b : &a;
        *end = *first;
        end = &(*first)->round->next;
        *first = *end;
    }
    *end = a ? a : b;
    return merged;
}

/* The first `count`, larger priority first, else what was ready first. */
static struct entry *merge_sort(struct entry *first, size_t count)
{
    struct entry *second = first;
    for (size_t i = 0; i < count / 2; i++)
        second = second->round->next;
    if (second == first) { /* one, or none */
        if (first)
            first->round->next = NULL;
        return first;
    }
    first = merge_sort(first, count / 2);
    return merge(first, merge_sort(second, count - count / 2));
}

static void sort(struct entry_list *list)
{
    list->head = list->tail = merge_sort(list->head, list->count);
    while (list->tail && list->tail->round->next)
        list->tail = list->tail->round->next;
}

static bool may_share(const struct coordinator *c, const struct signature_summary *a,
                      const struct signature_summary *b)
{
    if (c->config.groups_alone && (a->grouped || b->grouped))
        return false;
    if (c->config.adasum_alone && a->reduction == HVD_ADASUM)
        return false;
    return a->may_fuse && b->may_fuse && memcmp(a->fusion_key, b->fusion_key, FUSION_KEY_LENGTH) == 0;
}

/* The first that may start now; NULL when all have to wait. */
static struct entry *find_next(const struct coordinator *c)
{
    bool short_may = !c->short_running;
    /* `running` counts the short one, too. */
    bool long_may = c->running - !short_may < LONG_BATCHES_IN_FLIGHT;
    struct entry *entry = c->root.ready.head;
    while (entry && !(is_short(summary_of(entry)->bytes) ? short_may : long_may))
        entry = entry->round->next;
    return entry;
}

/* Moves the members of the next batch from `ready` to `members`: this one, and whatever behind it fits in. A
 * short batch stays short. Returns their bytes. */
static uint64_t pick_members(struct coordinator *c, const struct entry *next)
{
    struct root *root = &c->root;
    const struct signature_summary *head = summary_of(next);
    uint64_t bytes = 0;
    /* 0: nothing is fused, not even what has no bytes. */
    uint64_t limit = c->config.fusion_threshold;
    if (is_short(head->bytes) && limit > SHORT_BYTES)
        limit = SHORT_BYTES;
    struct entry *entry = root->ready.head, *behind;
    bool reached = false;
    entry_list_clear(&root->ready);
    entry_list_clear(&root->members);
    for (; entry; entry = behind) {
        behind = entry->round->next;
        reached |= entry == next;
        const struct signature_summary *summary = summary_of(entry);
        bool fits =
            entry == next || (reached && root->members.count < BATCH_LIMIT && bytes <= limit &&
                              summary->bytes <= limit - bytes && limit && may_share(c, head, summary));
        bytes += fits ? summary->bytes : 0;
        entry_list_push(fits ? &root->members : &root->ready, entry);
    }
    return bytes;
}

/* The id under which an entry can be a member of a batch; a new one if the agreed form is another. */
static hvd_code agree_on_id(struct coordinator *c, struct entry *entry, hvd_status *status)
{
    hvd_code code = HVD_OK;
    const struct agreement *agreed = entry->agreed;
    uint64_t *id = &entry->round->id;
    if (agreed && agreed->form == entry->round->common) {
        *id = agreed->id;
        return HVD_OK;
    }
    if (agreed) {
        decision_put_evict(&c->out, agreed->id);
        code = decided(c, id, status);
    }
    if (!code) {
        decision_put_assign(&c->out, entry, entry->round->common);
        code = decided(c, id, status);
    }
    return code;
}

static hvd_code decide_batch(struct coordinator *c, const struct entry *next, hvd_status *status)
{
    const struct entry_list *members = &c->root.members;
    uint64_t bytes = pick_members(c, next);
    const struct signature_summary *first = summary_of(next);
    for (struct entry *entry = members->head; entry; entry = entry->round->next) {
        /* May publish what was decided so far, but never this batch, so that the entries stay as they are. */
        hvd_code code = agree_on_id(c, entry, status);
        if (code)
            return code;
    }
    const struct coordinator_output *output = &c->config.output;
    uint16_t algorithm = output->choose_algorithm(output->owner, first->operation, first->reduction, bytes);
    decision_put_batch(&c->out, algorithm, members->head, (int)members->count);
    c->root.unpublished++;
    return publish(c, status);
}

static int64_t oldest_ready(const struct root *root)
{
    int64_t oldest = INT64_MAX;
    for (const struct entry *entry = root->ready.head; entry; entry = entry->round->next) {
        if (entry->round->ready_since < oldest)
            oldest = entry->round->ready_since;
    }
    return oldest;
}

static bool cycle_is_over(const struct coordinator *c, int64_t now)
{
    return !c->config.cycle_time || now - oldest_ready(&c->root) >= c->config.cycle_time;
}

int64_t decide_next(const struct coordinator *c)
{
    if (!c->config.cycle_time || !find_next(c))
        return INT64_MAX;
    return oldest_ready(&c->root) + c->config.cycle_time;
}

/* ---- the cache --------------------------------------------------------------------------------------- */

/* The least recently used go; what some rank is asking for just now stays. */
static hvd_code decide_evictions(struct coordinator *c, hvd_status *status)
{
    uint32_t count = c->table.recent.count;
    uint32_t excess = count > c->config.cache_capacity ? count - c->config.cache_capacity : 0;
    struct agreement *agreement = c->table.recent.tail;
    while (excess && agreement) {
        struct agreement *newer = agreement->previous;
        /* Nobody has asked in the present round, as far as is known here; who did meanwhile is read by the
         * retired id. */
        if (!agreement->entry->round) {
            uint64_t number;
            decision_put_evict(&c->out, agreement->id);
            excess--;
            hvd_code code = decided(c, &number, status);
            if (code)
                return code;
        }
        agreement = newer;
    }
    return publish(c, status);
}

static hvd_code decide_joined(struct coordinator *c, hvd_status *status)
{
    decision_put_joined(&c->out, c->root.last_joined, c->joined_unnamed);
    c->root.unpublished++;
    return publish(c, status);
}

hvd_code decide(struct coordinator *c, int64_t now, hvd_status *status)
{
    begin_message(c);
    hvd_code code = judge_complete(c, now, status);
    if (!code && c->leaver >= 0) {
        uint64_t number;
        decision_put_close(&c->out, c->leaver);
        code = decided(c, &number, status);
    }
    if (!code)
        code = publish(c, status);
    /* A close that was decided above is carried out by now: nothing more starts. */
    if (code || c->state != STATE_OPEN)
        return code;
    if (!c->root.sorted)
        sort(&c->root.ready);
    c->root.sorted = true;
    for (const struct entry *next; !code && (next = find_next(c)) && cycle_is_over(c, now);)
        code = decide_batch(c, next, status);
    if (!code && join_is_over(c))
        code = decide_joined(c, status);
    return code ? code : decide_evictions(c, status);
}
