/* coordinator.c - life, submissions and reports of a coordinator; see coordinator.h. Called with the progress
 * lock held. */
#include "coordinate/state.h"

#include "base/pool.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* A child without reports keeps evicted agreements alive at its parent; after so many it sends an empty one.
 */
#define EVICTIONS_UNSEEN_LIMIT 64

#define TABLE_CHUNK ((size_t)32 << 10)
#define TABLE_KEPT  ((size_t)16 << 10) /* of a chunk of rounds that have ended */

#define KEPT_NAMES 256 /* for which lists stay between two flushes */

void members_free(struct coordinator *c)
{
    pages_give(c->members, c->member_capacity * sizeof *c->members);
    pages_give(c->forms, c->member_capacity * sizeof *c->forms);
    c->members = NULL;
    c->forms = NULL;
    c->member_capacity = 0;
}

/* ---- life -------------------------------------------------------------------------------------------- */

hvd_code coordinator_create(const struct coordinator_config *config, struct coordinator **coordinator,
                            hvd_status *status)
{
    struct coordinator *c = calloc(1, sizeof *c);
    struct child *children = calloc((size_t)config->tree.child_count + 1, sizeof *children);
    if (!c || !children) {
        free(c);
        free(children);
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the coordinator of rank %d",
                          own_name(config));
    }
    c->config = *config;
    c->children = children;
    c->eager_sum = config->eager_threshold ? malloc(config->eager_threshold) : NULL;
    if (!c->eager_sum)
        c->config.eager_threshold = 0; /* such data go as all others do */
    c->table.reporters = config->tree.child_count + 1;
    pool_init(&c->table.pool, TABLE_CHUNK, TABLE_KEPT);
    pool_init(&c->table.forms.pool, TABLE_CHUNK, TABLE_CHUNK);
    c->leaver = -1;
    decide_clear(c);
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
    free(c->children);
    members_free(c);
    free(c->eager_sum);
    free(c->unheard);
    free(c->root.joined);
    free(c->joins);
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

/* ---- requests of this rank --------------------------------------------------------------------------- */

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

/* A signature begins with it: see request.c. */
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
    /* The usual case, a name that comes again unchanged, spares the search for its form. */
    if (entry->agreed && signature_equal(&entry->agreed->form->signature, &request->signature))
        form = form_share(entry->agreed->form);
    else
        code = form_find(&c->table.forms, &request->signature, c->config.tree.topology->size, &form, status);
    if (code)
        return code;
    code = table_open_round(&c->table, entry)
               ? round_add_own(entry, &c->config.tree, form, status)
               : status_set(status, HVD_OUT_OF_MEMORY, "out of memory for %.200s", entry->name);
    if (!code)
        eager_submit(c, entry, form, request);
    form_release(form);
    if (code)
        return code;
    entry->round->apart |= request->apart;
    put_request(c, entry, request);
    return HVD_OK;
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

uint64_t coordinator_unnamed(const struct coordinator *c, hvd_operation operation)
{
    return c->unnamed[unnamed_kind(operation)];
}

/* A refused request takes no number: on other ranks that number would mean another request. One that was
 * taken ends as all others do, even by a fault that it brings about itself. */
hvd_code coordinator_submit(struct coordinator *c, struct pending *request, hvd_status *status)
{
    size_t length = strlen(request->name);
    hvd_code code = check_submission(c, request, length, status);
    if (code)
        return code;
    if (operation_of(request) == HVD_JOIN)
        return join_begin(c, request, status);
    struct entry *entry = table_entry(&c->table, request->name, (uint32_t)length);
    if (!entry)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for %s", request->name);
    code = add_request(c, entry, request, status);
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

/* ---- sending ----------------------------------------------------------------------------------------- */

hvd_code send_out(struct coordinator *c, int place, hvd_status *status)
{
    int rank = rank_at(&c->config, place);
    if (c->out.failed)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for a message to rank %d", rank);
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

static void begin_report(struct coordinator *c)
{
    c->out.length = 0;
    wire_put_u8(&c->out, MESSAGE_REPORT);
    wire_put_u64(&c->out, c->seen);
    c->evictions_unseen = 0;
}

static void put_report(struct coordinator *c, const struct entry *entry)
{
    entry->round->phase = ROUND_REPORTED;
    const struct agreement *agreed = entry->agreed;
    if (entry->round->variants)
        report_put_variants(&c->out, entry);
    else if (agreed && agreed->form == entry->round->common)
        report_put_agreed(&c->out, entry, eager_reduce(c, entry));
    else
        report_put_common(&c->out, entry, eager_reduce(c, entry));
}

/* Before each item: what has become long goes out. */
static hvd_code cut_report(struct coordinator *c, hvd_status *status)
{
    if (c->out.length < MESSAGE_SOFT_LIMIT)
        return HVD_OK;
    hvd_code code = send_out(c, c->config.tree.parent, status);
    begin_report(c);
    return code;
}

/* Sends the parent the names that the whole subtree has submitted since the last report, and the ranks that
 * have joined: with the largest counters of the subtree so far, since the root needs the maximum only. */
static hvd_code report(struct coordinator *c, hvd_status *status)
{
    if (!c->complete.count && !c->join_count && c->evictions_unseen < EVICTIONS_UNSEEN_LIMIT)
        return HVD_OK;
    hvd_code code = HVD_OK;
    begin_report(c);
    for (const struct entry *entry = c->complete.head; !code && entry; entry = entry->round->next) {
        code = cut_report(c, status);
        put_report(c, entry);
    }
    entry_list_clear(&c->complete);
    for (int i = 0; !code && i < c->join_count; i++) { /* behind what was submitted before */
        code = cut_report(c, status);
        report_put_joined(&c->out, c->joins[i], c->joined_unnamed);
    }
    c->join_count = 0;
    return code ? code : send_out(c, c->config.tree.parent, status);
}

void coordinator_flush(struct coordinator *c, int64_t now)
{
    hvd_status problem;
    hvd_code code = HVD_OK;
    silence_check(c, now);
    if (c->state == STATE_OPEN)
        /* The root has no parent: what is complete there is judged at once. */
        code = is_root(c) ? decide(c, now, &problem) : report(c, &problem);
    if (!code)
        code = stall_check(c, now, &problem);
    if (!code)
        code = close_advance(c, &problem);
    /* Memory that many names needed at once is given back. */
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
