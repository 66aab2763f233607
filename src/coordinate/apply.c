/* apply.c - carries out each kind of decision, from the bytes of the message that every rank receives. Under
 * the progress lock. */
#include "coordinate/apply.h"

#include "base/pool.h"
#include "base/status.h"
#include "coordinate/close.h"
#include "coordinate/findings.h"
#include "coordinate/join.h"
#include "coordinate/rows.h"

#include <inttypes.h>
#include <stdlib.h>

static hvd_code refuse(hvd_status *status, const char *what, uint64_t id)
{
    return status_set(status, HVD_REFUSED, "%s %" PRIu64, what, id);
}

static hvd_code apply_assign(struct coordinator *c, const struct decision *decision, hvd_status *status)
{
    struct entry *entry = table_entry(&c->table, decision->name, decision->name_length);
    if (!entry)
        return status_no_memory(status);
    if (entry->agreed)
        return refuse(status, "a second id for a name that has", entry->agreed->id);
    struct form *form;
    TRY(form_find(&c->table.forms, &decision->signature, c->config.tree.topology->size, &form, status));
    /* The number of this decision becomes the id. */
    return table_agree(&c->table, entry, c->seen, form, status);
}

static hvd_code apply_evict(struct coordinator *c, uint64_t id, hvd_status *status)
{
    struct agreement *agreement = table_agreement(&c->table, id);
    if (!agreement || agreement->evicted)
        return refuse(status, "an eviction of the unknown id", id);
    table_evict(&c->table, agreement, c->seen);
    /* Counted until the next report, which carries `seen` to the parent. */
    c->evictions_unseen += !is_root(c);
    return HVD_OK;
}

static hvd_code apply_rows(struct coordinator *c, const struct decision *decision, hvd_status *status)
{
    struct agreement *agreement = table_agreement(&c->table, decision->id);
    if (!agreement || agreement->evicted)
        return refuse(status, "numbers of rows for the unknown id", decision->id);
    return rows_agree(c, agreement, decision, status);
}

static bool reserve_members(struct coordinator *c, size_t count)
{
    if (count <= c->member_capacity)
        return true;
    struct pending **members = pages_alloc(count * sizeof *members);
    struct member *forms = pages_alloc(count * sizeof *forms);
    if (!members || !forms) {
        pages_free(members, count * sizeof *members);
        pages_free(forms, count * sizeof *forms);
        return false;
    }
    members_free(c);
    c->members = members;
    c->forms = forms;
    c->member_capacity = count;
    return true;
}

static bool has_request(const struct entry *entry)
{
    return entry->round && entry->round->mine;
}

/* Returns true if this rank can do its part in the root's decision about a name. */
static bool is_due(const struct coordinator *c, const struct entry *entry)
{
    const struct round *round = entry->round;
    bool root_may_know = !round || round->phase != ROUND_COMPLETE;
    return (has_request(entry) || c->join) && !join_missing(c, entry) && root_may_know;
}

/* Members collected before a fault stay in `members`, where fail() finds them. The root keeps a batch of
 * short requests short as a whole. */
static hvd_code collect_members(struct coordinator *c, struct decision *decision, bool *all_short,
                                hvd_status *status)
{
    *all_short = true;
    if (!reserve_members(c, (size_t)decision->count))
        return status_no_memory(status);
    for (int i = 0; i < decision->count; i++) {
        uint64_t id = wire_get_u64(&decision->ids);
        struct agreement *agreement = table_agreement(&c->table, id);
        if (!agreement || agreement->evicted)
            return refuse(status, "a batch with the unknown id", id);
        struct entry *entry = agreement->entry;
        if (!is_due(c, entry))
            return refuse(status, "a batch that not every rank requested, with id", id);
        *all_short &= is_short(agreement->form->summary.bytes);
        c->forms[c->member_count] =
            (struct member){entry->name, &agreement->form->signature, agreement->rows};
        c->members[c->member_count++] = has_request(entry) ? entry_take_request(c, entry) : NULL;
        table_touch(&c->table, agreement);
        if (entry->round && entry->round->apart)
            c->table.last_apart = c->seen;
        end_round(c, entry);
    }
    return HVD_OK;
}

/* Once `members` is empty the engine owns the requests: it ends them after a later fault. */
static hvd_code apply_batch(struct coordinator *c, struct decision *decision, hvd_status *status)
{
    bool all_short;
    TRY(collect_members(c, decision, &all_short, status));
    struct batch batch = {.sequence = c->seen,
                          .requests = c->members,
                          .members = c->forms,
                          .count = decision->count,
                          .choice = decision->choice,
                          .is_short = all_short};
    c->member_count = 0;
    c->running++;
    if (batch.is_short && is_root(c))
        c->short_running = batch.sequence;
    c->config.output.run(c->config.output.owner, &batch);
    return HVD_OK;
}

/* The data were in the reports, so only the result is handed out. */
static hvd_code apply_result(struct coordinator *c, struct decision *decision, hvd_status *status)
{
    bool all_short;
    TRY(collect_members(c, decision, &all_short, status));
    const struct pending *request = c->members[0];
    struct signature_summary summary;
    signature_summarize(c->forms[0].signature, &summary);
    if (summary.bytes != decision->data_bytes || (request && request->eager_bytes != decision->data_bytes))
        return refuse(status, "the result of a request that is another one, as decision", c->seen);
    struct batch batch = {.sequence = c->seen,
                          .requests = c->members,
                          .members = c->forms,
                          .count = 1,
                          .result = decision->data};
    c->member_count = 0;
    c->config.output.run(c->config.output.owner, &batch);
    return HVD_OK;
}

static hvd_code apply_fail(struct coordinator *c, const struct decision *decision, hvd_status *status)
{
    struct entry *entry = map_get(&c->table.names, decision->name, decision->name_length);
    /* Without an entry no rank of this subtree has submitted the name, so all of them must have joined. */
    if (entry ? !is_due(c, entry) : c->absent != c->table.reporters)
        return refuse(status, "a failure that not every rank requested, as decision", c->seen);
    if (!entry)
        return HVD_OK;
    hvd_status mismatch;
    status_set(&mismatch, HVD_MISMATCH, "%s", decision->text);
    struct pending *request = has_request(entry) ? entry_take_request(c, entry) : NULL;
    end_round(c, entry);
    if (request)
        c->config.output.finish(c->config.output.owner, request, &mismatch);
    return HVD_OK;
}

static hvd_code apply_joined(struct coordinator *c, const struct decision *decision, hvd_status *status)
{
    if (c->absent != c->table.reporters || decision->rank >= c->config.tree.topology->size)
        return refuse(status, "the end of a join before every rank has joined, as decision", c->seen);
    join_end(c, decision->rank, decision->unnamed);
    return HVD_OK;
}

static hvd_code apply(struct coordinator *c, struct decision *decision, hvd_status *status)
{
    switch (decision->kind) {
    case DECISION_ASSIGN:
        return apply_assign(c, decision, status);
    case DECISION_EVICT:
        return apply_evict(c, decision->id, status);
    case DECISION_ROWS:
        return apply_rows(c, decision, status);
    case DECISION_FINDINGS:
        return findings_apply(c, decision, status);
    case DECISION_BATCH:
        return apply_batch(c, decision, status);
    case DECISION_FAIL:
        return apply_fail(c, decision, status);
    case DECISION_JOINED:
        return apply_joined(c, decision, status);
    case DECISION_RESULT:
        return apply_result(c, decision, status);
    case DECISION_TURN:
        if (c->config.output.turn)
            c->config.output.turn(c->config.output.owner, decision->set);
        return HVD_OK;
    case DECISION_CLOSE:
        close_begin(c, decision->rank);
    }
    return HVD_OK;
}

hvd_code apply_decisions(struct coordinator *c, struct wire_reader *reader, hvd_status *status)
{
    struct decision decision;
    uint64_t number = wire_get_u64(reader);
    if (number != c->seen + 1)
        return refuse(status, "decisions out of order: number", number);
    while (!wire_done(reader)) {
        if (c->state != STATE_OPEN || !decision_get(reader, &decision))
            return refuse(status, "a malformed decision after number", c->seen);
        if (decision.kind == DECISION_CLOSE && decision.rank >= c->config.tree.topology->size)
            return refuse(status, "the leaving of a rank that is not in the set:", (uint64_t)decision.rank);
        /* Counted before it is carried out, because its number may become an id or the end of one. */
        c->seen++;
        TRY(apply(c, &decision, status));
    }
    return HVD_OK;
}
