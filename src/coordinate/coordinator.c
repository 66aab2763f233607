/* coordinator.c - the interface of a coordinator: its life, the requests of this rank, reports to the parent,
 * received messages, faults. Under the progress lock. */
#include "coordinate/coordinator.h"

#include "base/fault.h"
#include "base/pool.h"
#include "base/status.h"
#include "coordinate/apply.h"
#include "coordinate/close.h"
#include "coordinate/decide.h"
#include "coordinate/eager.h"
#include "coordinate/findings.h"
#include "coordinate/join.h"
#include "coordinate/late.h"
#include "coordinate/name.h"
#include "coordinate/rows.h"
#include "coordinate/silence.h"
#include "coordinate/stall.h"
#include "coordinate/state.h"

#include <stdlib.h>
#include <string.h>

/* A child without reports keeps evicted agreements alive at its parent; after this many evictions it sends an
 * empty report. */
#define EVICTIONS_UNSEEN_LIMIT 64

#define TABLE_CHUNK ((size_t)32 << 10)
#define TABLE_KEPT  ((size_t)16 << 10) /* bytes kept of a chunk whose rounds have ended */

#define KEPT_NAMES 256 /* lists for at most this many names are kept between two flushes */

/* ---- life ---------------------------------------------------------------------------------------- */

hvd_code coordinator_create(const struct coordinator_config *config, struct coordinator **coordinator,
                            hvd_status *status)
{
    struct coordinator *c = calloc(1, sizeof *c);
    size_t reporters = (size_t)config->tree.child_count + 1;
    struct child *children = calloc(reporters, sizeof *children);
    struct late *late = config->output.late ? calloc(reporters, sizeof *late) : NULL;
    if (!c || !children || (config->output.late && !late)) {
        free(c);
        free(children);
        free(late);
        return status_no_memory(status);
    }
    c->config = *config;
    c->children = children;
    c->late = late;
    c->eager_sum = config->eager_threshold ? malloc(config->eager_threshold) : NULL;
    if (!c->eager_sum)
        c->config.eager_threshold = 0; /* small data travel in batches, as all others do */
    c->table.reporters = config->tree.child_count + 1;
    pool_init(&c->table.pool, TABLE_CHUNK, TABLE_KEPT);
    pool_init(&c->table.forms.pool, TABLE_CHUNK, TABLE_CHUNK);
    c->leaver = -1;
    ready_clear(c);
    *coordinator = c;
    return HVD_OK;
}

void coordinator_destroy(struct coordinator *c)
{
    if (!c)
        return;
    table_free(&c->table);
    tree_node_free(&c->config.tree);
    wire_writer_free(&c->out);
    wire_writer_free(&c->rows);
    wire_writer_free(&c->findings);
    free(c->children);
    free(c->late);
    members_free(c);
    free(c->eager_sum);
    free(c->silent_places);
    free(c->root.joined);
    free(c->joins);
    free(c->turns);
    free(c);
}

hvd_code coordinator_health(const struct coordinator *c, hvd_status *status)
{
    return c->state == STATE_OPEN ? status_ok(status) : status_copy(status, &c->cause);
}

int coordinator_pending_count(const struct coordinator *c)
{
    return c->pending;
}

/* ---- requests of this rank ----------------------------------------------------------------------- */

static void put_request(struct coordinator *c, struct entry *entry, struct pending *request)
{
    entry->round->mine = request;
    request->entry = entry;
    request->previous = c->newest;
    request->next = NULL;
    *(c->newest ? &c->newest->next : &c->oldest) = request;
    c->newest = request;
    c->pending++;
}

/* A signature starts with the operation: see request.c. */
static hvd_operation operation_of(const struct pending *request)
{
    return (hvd_operation)request->signature.bytes[0];
}

static hvd_code check_submission(const struct coordinator *c, const struct pending *request, size_t length,
                                 hvd_status *status)
{
    if (c->state != STATE_OPEN)
        return status_copy(status, &c->cause);
    if (c->leaves)
        return status_set(status, HVD_SHUT_DOWN, "this rank (%d) has left the job: hvd_shutdown was called",
                          own_name(&c->config));
    if (c->join)
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "%s \"%.200s\": rank %d has joined, and can submit again once all ranks have (join returns then)",
            operation_name(operation_of(request)), name_plain(operation_of(request), request->name),
            own_name(&c->config));
    if (length == 0 || length >= REQUEST_NAME_LIMIT)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "the name %.40s... has %zu bytes; it may have 1 to %d", request->name, length,
                          REQUEST_NAME_LIMIT - 1);
    return HVD_OK;
}

static hvd_code add_request(struct coordinator *c, struct entry *entry, struct pending *request,
                            hvd_status *status)
{
    if (entry->round && entry->round->mine)
        return status_set(
            status, HVD_DUPLICATE_NAME,
            "%s \"%.200s\" is in flight on rank %d; wait for it, or give the second one another "
            "name",
            operation_name(operation_of(request)), name_plain(operation_of(request), request->name),
            own_name(&c->config));
    struct form *form;
    hvd_code code = HVD_OK;
    /* In the usual case, a name that is submitted again unchanged, the search for its form is skipped. */
    if (entry->agreed && signature_equal(&entry->agreed->form->signature, &request->signature))
        form = form_share(entry->agreed->form);
    else
        code = form_find(&c->table.forms, &request->signature, c->config.tree.topology->size, &form, status);
    if (code)
        return code;
    code = table_open_round(&c->table, entry, c->now) ? round_add_own(entry, &c->config.tree, form, status)
                                                      : status_no_memory(status);
    if (!code)
        eager_submit(c, entry, form, request);
    form_release(form);
    if (code)
        return code;
    entry->round->apart |= request->apart;
    put_request(c, entry, request);
    return HVD_OK;
}

uint32_t *coordinator_mark(const struct coordinator *c, const struct pending *request)
{
    struct entry *entry = request->entry;
    if (!entry)
        entry = map_get(&c->table.names, request->name, strlen(request->name));
    return entry ? &entry->mark : NULL;
}

uint64_t coordinator_bytes(const struct pending *request)
{
    const struct round *round = request->entry ? request->entry->round : NULL;
    return round && round->common ? round->common->summary.bytes : 0;
}

const struct pending *coordinator_find(const struct coordinator *c, const char *name)
{
    const struct entry *entry = c->pending ? map_get(&c->table.names, name, strlen(name)) : NULL;
    return entry && entry->round ? entry->round->mine : NULL;
}

const struct pending *coordinator_oldest(const struct coordinator *c)
{
    return c->oldest;
}

const struct pending *coordinator_only(const struct coordinator *c)
{
    return c->oldest == c->newest ? c->oldest : NULL;
}

uint64_t coordinator_unnamed(const struct coordinator *c, hvd_operation operation)
{
    return c->unnamed[unnamed_kind(operation)];
}

/* A refused request takes no number: on other ranks that number would mean another request. An accepted
 * request ends as all others do, even by a fault that it causes itself. */
hvd_code coordinator_submit(struct coordinator *c, struct pending *request, int64_t now, hvd_status *status)
{
    size_t length = strlen(request->name);
    c->now = now;
    TRY(check_submission(c, request, length, status));
    if (operation_of(request) == HVD_JOIN)
        return join_begin(c, request, status);
    struct entry *entry = table_entry(&c->table, request->name, (uint32_t)length);
    if (!entry)
        return status_no_memory(status);
    hvd_code code = add_request(c, entry, request, status);
    if (code) {
        table_tidy(&c->table, entry);
        return code;
    }
    c->unnamed[unnamed_kind(operation_of(request))] += request->unnamed;
    check_complete(c, entry);
    return status_ok(status);
}

void coordinator_tune(struct coordinator *c, uint64_t fusion_threshold, int64_t cycle_time)
{
    c->config.fusion_threshold = fusion_threshold;
    c->config.cycle_time = cycle_time;
}

void coordinator_batch_done(struct coordinator *c, uint64_t sequence)
{
    if (c->short_running == sequence)
        c->short_running = 0;
    if (c->running > 0)
        c->running--;
}

/* ---- sending ------------------------------------------------------------------------------------- */

static void begin_report(struct coordinator *c)
{
    c->out.length = 0;
    wire_put_u8(&c->out, MESSAGE_REPORT);
    wire_put_u64(&c->out, c->seen);
    c->evictions_unseen = 0;
}

static void put_report(struct coordinator *c, struct entry *entry)
{
    entry->round->phase = ROUND_REPORTED;
    const struct agreement *agreed = entry->agreed;
    if (entry->round->variants)
        report_put_variants(&c->out, entry);
    else if (agreed && agreed->form == entry->round->common)
        report_put_agreed(&c->out, entry, eager_reduce(c, entry), rows_find(c, entry, agreed->rows));
    else
        report_put_common(&c->out, entry, eager_reduce(c, entry), rows_find(c, entry, NULL));
}

/* Called before each item: sends a report that has become long. */
static hvd_code cut_report(struct coordinator *c, hvd_status *status)
{
    if (c->out.length < MESSAGE_SOFT_LIMIT)
        return HVD_OK;
    hvd_code code = send_out(c, c->config.tree.parent, status);
    begin_report(c);
    return code;
}

/* Sends the parent the names that the whole subtree has submitted since the last report, and the ranks that
 * have joined, with the largest counters of the subtree so far, since the root needs only the maximum. */
static hvd_code report(struct coordinator *c, hvd_status *status)
{
    if (!c->complete.count && !c->join_count && !c->turn_count && !c->findings.length &&
        c->evictions_unseen < EVICTIONS_UNSEEN_LIMIT)
        return HVD_OK;
    begin_report(c);
    findings_report(c); /* before requests that may depend on what it was found in */
    for (struct entry *entry = c->complete.head; entry; entry = entry->round->next) {
        TRY(cut_report(c, status));
        put_report(c, entry);
    }
    entry_list_clear(&c->complete);
    for (int i = 0; i < c->join_count; i++) { /* after the requests that were submitted before */
        TRY(cut_report(c, status));
        report_put_joined(&c->out, c->joins[i], c->joined_unnamed);
    }
    c->join_count = 0;
    for (int i = 0; i < c->turn_count; i++) {
        TRY(cut_report(c, status));
        report_put_turn(&c->out, c->turns[i]);
    }
    c->turn_count = 0;
    return send_out(c, c->config.tree.parent, status);
}

void coordinator_flush(struct coordinator *c, int64_t now)
{
    hvd_status problem;
    hvd_code code = HVD_OK;
    c->now = now;
    silence_check(c, now);
    if (c->state == STATE_OPEN)
        /* The root has no parent to report to: it judges complete rounds at once. */
        code = is_root(c) ? decide(c, now, &problem) : report(c, &problem);
    if (!code)
        code = stall_check(c, now, &problem);
    if (!code)
        code = close_advance(c, &problem);
    /* Memory for many names at once is released. */
    wire_reset(&c->out);
    if (c->member_capacity > KEPT_NAMES)
        members_free(c);
    if (!code)
        return;
    hvd_status cause;
    status_set(&cause, code, "rank %d: %.500s", own_name(&c->config), problem.text);
    fail(c, -1, &cause);
}

int64_t coordinator_next_flush(const struct coordinator *c)
{
    int64_t silence = silence_next(c);
    if (c->state != STATE_OPEN)
        return silence;
    int64_t stall = stall_next(c);
    int64_t batch = is_root(c) ? decide_next(c) : INT64_MAX;
    int64_t next = stall < batch ? stall : batch;
    return next < silence ? next : silence;
}

/* ---- turns, findings --------------------------------------------------------------------------------- */

static hvd_code add_turn(struct coordinator *c, int set, hvd_status *status)
{
    if (c->turn_count == c->turn_capacity) {
        int capacity = c->turn_capacity ? 2 * c->turn_capacity : 4;
        int *turns = realloc(c->turns, (size_t)capacity * sizeof *turns);
        if (!turns)
            return status_no_memory(status);
        c->turns = turns;
        c->turn_capacity = capacity;
    }
    c->turns[c->turn_count++] = set;
    return HVD_OK;
}

void coordinator_ask_turn(struct coordinator *c, int set)
{
    hvd_status problem, cause;
    if (c->state != STATE_OPEN || !add_turn(c, set, &problem))
        return;
    status_set(&cause, problem.code, "rank %d: %.500s", own_name(&c->config), problem.text);
    fail(c, -1, &cause);
}

void coordinator_found(struct coordinator *c, const struct pending *request)
{
    findings_add(c, operation_of(request), request->name);
}

/* ---- reports ------------------------------------------------------------------------------------- */

static void emit_ready(const struct coordinator *c, int child, const struct entry *entry)
{
    const struct coordinator_output *output = &c->config.output;
    const struct tree_node *tree = &c->config.tree;
    const struct round *round = entry->round;
    if (!output->ready || !is_root(c))
        return;
    /* The event has one operation and reduction: if ranks differ, those of the first variant. */
    const struct form *form = round->common ? round->common : round->variants->list[0].form;
    for (int place = tree->children[child]; place <= tree_child_last(tree, child); place++)
        output->ready(output->owner, entry->name, &form->summary, rank_at(&c->config, place));
}

static hvd_code count_common(struct coordinator *c, int child, struct entry *entry,
                             const struct report *report, hvd_status *status)
{
    struct form *form;
    TRY(form_find(&c->table.forms, &report->variants[0].signature, c->config.tree.topology->size, &form,
                  status));
    hvd_code code = round_add_child(entry, &c->config.tree, child, form, status);
    form_release(form);
    return code;
}

static bool has_form(const struct variants *variants, const struct form *form)
{
    for (int i = 0; i < variants->count; i++) {
        if (variants->list[i].form == form)
            return true;
    }
    return false;
}

static hvd_code count_variants(struct coordinator *c, int child, struct entry *entry,
                               const struct report *report, hvd_status *status)
{
    struct variants variants = {.others = report->others};
    hvd_code code = HVD_OK;
    for (int i = 0; !code && i < report->count; i++) {
        struct form *form;
        code = form_find(&c->table.forms, &report->variants[i].signature, c->config.tree.topology->size,
                         &form, status);
        if (code)
            break;
        if (has_form(&variants, form))
            code = status_set(status, HVD_REFUSED, "a difference where there is none");
        variants.list[variants.count++] = (struct variant){form, report->variants[i].ranks};
    }
    if (!code)
        code = round_add_variants(entry, &c->config.tree, child, &variants, status);
    variants_release(&variants);
    return code;
}

static hvd_code count(struct coordinator *c, int child, const struct report *report, hvd_status *status)
{
    struct agreement *agreement = NULL;
    struct entry *entry;
    if (report->kind == REPORT_TURN)
        return add_turn(c, report->set, status);
    if (report->kind == REPORT_FINDINGS)
        return findings_receive(c, child, report, status);
    if (report->kind == REPORT_JOINED)
        return join_receive(c, child, report->rank, report->unnamed, status);
    if (report->kind == REPORT_AGREED) {
        agreement = table_agreement(&c->table, report->id);
        /* Compared with this message's `seen`: a child that has seen the eviction must not use the id. */
        if (!agreement || (agreement->evicted && agreement->evicted <= c->children[child].seen))
            return status_set(status, HVD_REFUSED, "an unknown id");
        entry = agreement->entry;
    } else {
        entry = table_entry(&c->table, report->name, report->name_length);
    }
    if (!entry || !table_open_round(&c->table, entry, c->now))
        return status_no_memory(status);
    if (round_has_child(entry, child))
        return status_set(status, HVD_REFUSED, "a request twice (\"%.200s\")", entry->name);
    stall_drop(entry, child);
    if (agreement)
        TRY(round_add_child(entry, &c->config.tree, child, agreement->form, status));
    else if (report->kind == REPORT_COMMON)
        TRY(count_common(c, child, entry, report, status));
    else
        TRY(count_variants(c, child, entry, report, status));
    TRY(eager_receive(c, child, entry, report, status));
    TRY(rows_receive(c, child, entry, report, agreement, status));
    entry->round->partial |= report->partial;
    entry->round->rootless |= report->rootless;
    entry->round->apart |= report->apart;
    emit_ready(c, child, entry);
    check_complete(c, entry);
    return HVD_OK;
}

/* Frees evicted agreements whose eviction all children have seen. */
static void update_seen(struct coordinator *c, int child, uint64_t seen)
{
    const struct agreement *retired = c->table.retired.head;
    /* Only a child that now sees the oldest eviction for the first time can release an agreement. */
    bool held_up = retired && c->children[child].seen < retired->evicted && retired->evicted <= seen;
    c->children[child].seen = seen;
    if (!held_up)
        return;
    for (int i = 0; i < c->config.tree.child_count; i++) {
        if (c->children[i].seen < seen)
            seen = c->children[i].seen;
    }
    table_forget_retired(&c->table, seen);
}

static hvd_code receive_reports(struct coordinator *c, int child, struct wire_reader *reader,
                                hvd_status *status)
{
    struct report report;
    uint64_t seen = wire_get_u64(reader);
    if (reader->failed || seen < c->children[child].seen || seen > c->seen || c->children[child].done)
        return status_set(status, HVD_REFUSED, "a report out of order");
    update_seen(c, child, seen);
    if (c->state != STATE_OPEN)
        return HVD_OK; /* sent before the child received the close, which has ended its requests there */
    int first = c->config.tree.children[child];
    int last = tree_child_last(&c->config.tree, child);
    while (!wire_done(reader)) {
        if (!report_get(reader, first, last, &report))
            return status_set(status, HVD_REFUSED, "a malformed report");
        TRY(count(c, child, &report, status));
    }
    return HVD_OK;
}

/* ---- messages ------------------------------------------------------------------------------------ */

static hvd_code receive_leave(struct coordinator *c, int child, struct wire_reader *reader,
                              hvd_status *status)
{
    uint32_t place = wire_get_u32(reader);
    if (!wire_done(reader) || place < (uint32_t)c->config.tree.children[child] ||
        place > (uint32_t)tree_child_last(&c->config.tree, child))
        return status_set(status, HVD_REFUSED, "a malformed leave");
    if (c->leaver < 0)
        c->leaver = (int)place;
    return HVD_OK;
}

static hvd_code receive_from_child(struct coordinator *c, int child, uint8_t kind, struct wire_reader *reader,
                                   hvd_status *status)
{
    if (kind == MESSAGE_REPORT)
        return receive_reports(c, child, reader, status);
    if (kind == MESSAGE_LEAVE)
        return receive_leave(c, child, reader, status);
    if (kind == MESSAGE_STALLED)
        return c->state == STATE_OPEN ? stall_receive(c, child, reader, status) : HVD_OK;
    if (kind == MESSAGE_SHUTDOWN_DONE && wire_done(reader) && c->state == STATE_CLOSING &&
        !c->children[child].done) {
        c->children[child].done = true;
        return HVD_OK;
    }
    return status_set(status, HVD_REFUSED, "a message that no child sends then");
}

static hvd_code receive_from_parent(struct coordinator *c, uint8_t kind, const uint8_t *bytes, size_t length,
                                    hvd_status *status)
{
    struct wire_reader reader = wire_reader_of(bytes + 1, length - 1);
    if (kind == MESSAGE_DECISIONS && c->state == STATE_OPEN) {
        /* A message that fails here is not forwarded: the abort that follows sends the children the cause. */
        hvd_code code = apply_decisions(c, &reader, status);
        if (!code)
            send_to_children(c, bytes, length);
        return code;
    }
    if (kind == MESSAGE_SHUTDOWN_ACK && wire_done(&reader) && c->state == STATE_SHUTDOWN) {
        close_end(c);
        return HVD_OK;
    }
    return status_set(status, HVD_REFUSED, "a message that no parent sends then");
}

static hvd_code receive_abort(struct coordinator *c, int from, struct wire_reader *reader, hvd_status *status)
{
    hvd_status cause;
    if (!cause_get(reader, &cause) || !wire_done(reader))
        return status_set(status, HVD_REFUSED, "a malformed abort");
    fail(c, from, &cause);
    return HVD_OK;
}

static hvd_code receive_silent(struct coordinator *c, int from, struct wire_reader *reader,
                               hvd_status *status)
{
    uint32_t size = (uint32_t)c->config.tree.topology->size;
    uint32_t place = wire_get_u32(reader), reporter = wire_get_u32(reader);
    if (!wire_done(reader) || place >= size || reporter >= size)
        return status_set(status, HVD_REFUSED, "a malformed report of silence");
    silence_add(c, (int)place, (int)reporter, from);
    return HVD_OK;
}

static hvd_code receive_present(struct coordinator *c, int from, struct wire_reader *reader,
                                hvd_status *status)
{
    uint32_t place = wire_get_u32(reader);
    if (!wire_done(reader) || place >= (uint32_t)c->config.tree.topology->size)
        return status_set(status, HVD_REFUSED, "a malformed answer to a report of silence");
    silence_add_present(c, (int)place, from);
    return HVD_OK;
}

static hvd_code receive_broken(struct coordinator *c, int from, struct wire_reader *reader,
                               hvd_status *status)
{
    char text[HVD_STATUS_TEXT];
    if (!wire_get_string(reader, text, sizeof text) || !wire_done(reader))
        return status_set(status, HVD_REFUSED, "a malformed report of a broken path");
    silence_add_broken(c, text, from);
    return HVD_OK;
}

/* Returns the index of a child; -1: the parent; -2: no neighbour. */
static int neighbour(const struct coordinator *c, int place)
{
    const struct tree_node *tree = &c->config.tree;
    if (place == tree->parent)
        return -1;
    for (int low = 0, high = tree->child_count - 1; low <= high;) {
        int middle = (low + high) / 2;
        if (tree->children[middle] == place)
            return middle;
        if (tree->children[middle] < place)
            low = middle + 1;
        else
            high = middle - 1;
    }
    return -2;
}

void coordinator_receive(struct coordinator *c, int from, const uint8_t *bytes, size_t length, int64_t now)
{
    c->now = now;
    if (c->state == STATE_FAILED || c->state == STATE_CLOSED)
        return;
    hvd_status problem;
    hvd_code code;
    int place = place_of(&c->config, from), child = neighbour(c, place);
    struct wire_reader reader = wire_reader_of(bytes, length);
    uint8_t kind = wire_get_u8(&reader);
    if (length > MESSAGE_LIMIT || reader.failed)
        code = status_set(&problem, HVD_REFUSED, "a message of %zu bytes", length);
    else if (kind == MESSAGE_ABORT)
        code = receive_abort(c, place, &reader, &problem);
    else if (kind == MESSAGE_SILENT)
        code = receive_silent(c, place, &reader, &problem);
    else if (kind == MESSAGE_PRESENT)
        code = receive_present(c, place, &reader, &problem);
    else if (kind == MESSAGE_BROKEN)
        code = receive_broken(c, place, &reader, &problem);
    else if (child < -1)
        code = status_set(&problem, HVD_REFUSED, "a message that only neighbours in the tree send");
    else if (child < 0)
        code = receive_from_parent(c, kind, bytes, length, &problem);
    else
        code = receive_from_child(c, child, kind, &reader, &problem);
    if (!code)
        return;
    hvd_status cause;
    if (code == HVD_OUT_OF_MEMORY)
        status_set(&cause, code, "rank %d: %.500s", own_name(&c->config), problem.text);
    else
        status_set(&cause, HVD_REFUSED, "rank %d sent rank %d %.500s; do they run different versions?",
                   name_at(&c->config, place), own_name(&c->config), problem.text);
    fail(c, -1, &cause);
}

/* ---- faults, and the end ----------------------------------------------------------------------------- */

/* After SHUTDOWN_DONE only the link to the parent matters, which delivers SHUTDOWN_ACK: its loss ends the
 * wait for that. */
static bool is_shut_down(struct coordinator *c, int lost)
{
    const struct tree_node *tree = &c->config.tree;
    bool harmless = c->state == STATE_SHUTDOWN;
    for (int i = 0; i < tree->child_count; i++) {
        if (tree->children[i] == lost && c->children[i].done)
            harmless = c->children[i].lost = true;
    }
    if (harmless && c->state == STATE_SHUTDOWN && lost == tree->parent)
        close_end(c);
    return harmless;
}

void coordinator_abort(struct coordinator *c, int lost_rank, const hvd_status *cause, int64_t now)
{
    c->now = now;
    /* Below 0 no peer is lost: the fault is this rank's own. */
    int lost = lost_rank < 0 ? -1 : place_of(&c->config, lost_rank);
    if (lost < 0 || !is_shut_down(c, lost))
        fail(c, lost, cause);
}

void coordinator_leave(struct coordinator *c)
{
    c->leaves = true;
    if (c->leaver < 0)
        c->leaver = c->config.tree.place;
}

void coordinator_silent(struct coordinator *c, int rank)
{
    silence_add(c, place_of(&c->config, rank), c->config.tree.place, -1);
}

void coordinator_broken(struct coordinator *c, const char *text)
{
    silence_add_broken(c, text, -1);
}

bool coordinator_has_silent(const struct coordinator *c)
{
    return has_silent(c);
}
