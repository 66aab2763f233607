/* receive.c - messages from the parent and the children. Reports count here; decisions are carried out by
 * apply.c. Called with the progress lock held. */
#include "coordinate/state.h"

#include "base/status.h"

#include <string.h>

/* Once per round. A round without any report is not complete, even if all ranks have joined. */
void check_complete(struct coordinator *c, struct entry *entry)
{
    struct round *round = entry->round;
    if (!round || round->phase != ROUND_COUNTING || round->missing == c->table.reporters ||
        join_missing(c, entry))
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

static void emit_ready(const struct coordinator *c, int child, const struct entry *entry)
{
    const struct coordinator_output *output = &c->config.output;
    const struct tree_node *tree = &c->config.tree;
    const struct round *round = entry->round;
    if (!output->ready || !is_root(c))
        return;
    /* The event has one operation and reduction: where ranks differ, those of the first variant. */
    const struct form *form = round->common ? round->common : round->variants->list[0].form;
    for (int place = tree->children[child]; place <= tree_child_last(tree, child); place++)
        output->ready(output->owner, entry->name, &form->summary, rank_at(&c->config, place));
}

/* ---- reports ----------------------------------------------------------------------------------------- */

static hvd_code count_common(struct coordinator *c, int child, struct entry *entry,
                             const struct report *report, hvd_status *status)
{
    struct form *form;
    hvd_code code = form_find(&c->table.forms, &report->variants[0].signature, c->config.tree.topology->size,
                              &form, status);
    if (code)
        return code;
    code = round_add_child(entry, &c->config.tree, child, form, status);
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
    if (report->kind == REPORT_JOINED)
        return join_receive(c, child, report->rank, report->unnamed, status);
    if (report->kind == REPORT_AGREED) {
        agreement = table_agreement(&c->table, report->id);
        /* Compared with the `seen` of this very message: a child that has seen the eviction must not use the
         * id. */
        if (!agreement || (agreement->evicted && agreement->evicted <= c->children[child].seen))
            return status_set(status, HVD_REFUSED, "an unknown id");
        entry = agreement->entry;
    } else {
        entry = table_entry(&c->table, report->name, report->name_length);
    }
    if (!entry || !table_open_round(&c->table, entry))
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for a request's name");
    if (round_has_child(entry, child))
        return status_set(status, HVD_REFUSED, "a request twice (\"%.200s\")", entry->name);
    stall_drop(entry, child);
    hvd_code code = agreement ? round_add_child(entry, &c->config.tree, child, agreement->form, status)
                    : report->kind == REPORT_COMMON ? count_common(c, child, entry, report, status)
                                                    : count_variants(c, child, entry, report, status);
    if (!code)
        code = eager_receive(c, child, entry, report, status);
    if (code)
        return code;
    entry->round->partial |= report->partial;
    entry->round->rootless |= report->rootless;
    entry->round->apart |= report->apart;
    emit_ready(c, child, entry);
    check_complete(c, entry);
    return HVD_OK;
}

/* Evicted agreements whose eviction all children have seen are freed. */
static void update_seen(struct coordinator *c, int child, uint64_t seen)
{
    const struct agreement *retired = c->table.retired.head;
    /* Only a child that was behind the oldest evicted id, and no longer is, can release anything. */
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
        return HVD_OK; /* sent before the child received the close; its requests have ended there, too */
    int first = c->config.tree.children[child];
    int last = tree_child_last(&c->config.tree, child);
    hvd_code code = HVD_OK;
    while (!code && !wire_done(reader)) {
        if (!report_get(reader, first, last, &report))
            return status_set(status, HVD_REFUSED, "a malformed report");
        code = count(c, child, &report, status);
    }
    return code;
}

/* ---- messages ---------------------------------------------------------------------------------------- */

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
        /* What fails here is not forwarded: the abort that follows carries the cause to the children. */
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
    hvd_status cause = {.code = (hvd_code)wire_get_u8(reader)};
    bool known = cause.code > HVD_IN_PROGRESS && strcmp(hvd_code_name(cause.code), "unknown") != 0;
    if (!known || !wire_get_string(reader, cause.text, sizeof cause.text) || !wire_done(reader))
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

/* Index of a child; -1: the parent; -2: no neighbour. */
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

void coordinator_receive(struct coordinator *c, int from, const uint8_t *bytes, size_t length)
{
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
