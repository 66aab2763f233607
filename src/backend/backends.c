/* backends.c - the back ends of one process set: opens and closes rows, chooses a row for a batch, and starts
 * collectives in the order of decisions. Opening and closing run in the thread that opens or closes the set,
 * all other calls under the progress lock. A collective waits in `started` until its row may run it: alone if
 * it is exclusive, and with a turn if the row needs one order over all sets. */
#include "backend/backend.h"

#include "backend/worker.h"
#include "base/status.h"
#include "base/types.h"
#include "rendezvous/client.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BACKEND(name) &backend_##name,
const struct backend *const backend_table[] = {
#include "backend/backends.def"
    NULL};
#undef BACKEND

/* ---- rows --------------------------------------------------------------------------------------------- */

static hvd_code row_open(struct backends *backends, struct backend_row *row, const struct backend *backend,
                         const struct backend_opening *opening, hvd_status *status)
{
    *row = (struct backend_row){.backend = backend, .descriptor = -1};
    assert(!backend->one_order || !backend->run);
    if (backend->one_order && !opening->turns.has) {
        row->missing = strdup("process sets have no order here");
        return HVD_OK;
    }
    hvd_status reason;
    status_ok(&reason);
    hvd_code code = backend->open(opening, &row->state, &row->descriptor, &reason);
    if (!code && !row->state)
        row->missing = strdup(reason.text);
    if (!code && row->state && backend->run) {
        code = worker_open(backend, row->state, backends->rank, &backends->workers, &row->worker,
                           &row->descriptor, &reason);
        if (code)
            backend->close(row->state);
    }
    return code ? status_copy(status, &reason) : HVD_OK;
}

hvd_code backends_open(struct backends *backends, const struct backend *const *table,
                       const struct backend_opening *opening, hvd_status *status)
{
    int count = 1; /* at least the row `host` */
    while (table[count])
        count++;
    *backends = (struct backends){.set = opening->set,
                                  .rank = opening->ranks[opening->rank],
                                  .root = opening->ranks[0],
                                  .turns = opening->turns,
                                  .rows = calloc((size_t)count, sizeof(struct backend_row))};
    if (!backends->rows)
        return status_no_memory(status);
    hvd_code code = HVD_OK;
    while (!code && backends->count < count) {
        struct backend_row *row = &backends->rows[backends->count];
        code = row_open(backends, row, table[backends->count], opening, status);
        backends->count += !code;
    }
    if (code)
        backends_close(backends);
    return code;
}

void backends_close(struct backends *backends)
{
    for (int i = 0; i < backends->count; i++) {
        struct backend_row *row = &backends->rows[i];
        if (row->worker)
            worker_close(row->worker);
        if (row->state)
            row->backend->close(row->state);
        free(row->missing);
    }
    free(backends->rows);
    *backends = (struct backends){0};
}

/* ---- the choice --------------------------------------------------------------------------------------- */

struct choice backends_choose(const struct backends *backends, const struct backend_query *query)
{
    for (int i = 0; i < backends->count; i++) {
        const struct backend_row *row = &backends->rows[i];
        struct choice choice = {.backend = (uint8_t)i};
        if (!row->state || !row->backend->supports(row->state, query, &choice))
            continue;
        if (row->backend->prepare) {
            const struct backend_row *last = &backends->rows[backends->count - 1];
            last->backend->supports(last->state, query, &choice);
        }
        return choice;
    }
    assert(!"the last row takes every batch");
    return (struct choice){0};
}

static struct backend_row *row_of(const struct backends *backends, struct choice choice)
{
    return choice.backend < backends->count ? &backends->rows[choice.backend] : NULL;
}

const char *backends_algorithm_name(const struct backends *backends, struct choice choice)
{
    const struct backend_row *row = row_of(backends, choice);
    if (!row)
        return "unknown";
    return row->backend->algorithm_name ? row->backend->algorithm_name(choice.algorithm) : row->backend->name;
}

/* ---- order -------------------------------------------------------------------------------------------- */

/* Returns true if the collective's row needs one order over all process sets. */
static bool needs_turn(const struct backends *backends, const struct collective *collective)
{
    const struct backend_row *row = row_of(backends, collective->choice);
    return row && row->backend->one_order && collective->size > 1;
}

void backends_start(struct backends *backends, struct collective *collective)
{
    assert(!backends->aborted);
    collective_queue_push(&backends->started, collective);
    if (needs_turn(backends, collective))
        backends->turns.ask(backends->turns.owner);
}

static bool rows_idle(const struct backends *backends)
{
    bool idle = true;
    for (int i = 0; i < backends->count; i++)
        idle &= backends->rows[i].progress == BACKEND_DONE;
    return idle;
}

/* Returns true if the next collective may start in its row. */
static bool may_start(const struct backends *backends)
{
    const struct collective *next = backends->started.head;
    if (!next || ((next->exclusive || backends->exclusive) && !rows_idle(backends)))
        return false;
    return !needs_turn(backends, next) || backends->turns.has(backends->turns.owner);
}

/* Refuses a row that this rank does not have; another process chose it. */
static hvd_code refuse(const struct backends *backends, const struct collective *collective,
                       const struct backend_row *row, hvd_status *status)
{
    const char *operation = hvd_operation_name(collective->operation);
    if (!row)
        return status_set(status, HVD_REFUSED,
                          "rank %d can't run the %s of process set %d by back end number %d, which rank %d "
                          "has chosen: it has %d of them; do the ranks run different versions?",
                          backends->rank, operation, backends->set, collective->choice.backend,
                          backends->root, backends->count);
    return status_set(status, HVD_REFUSED,
                      "rank %d can't run the %s of process set %d by back end %s, which rank %d has chosen: "
                      "%s; install it on all hosts, or on none",
                      backends->rank, operation, backends->set, row->backend->name, backends->root,
                      row->missing ? row->missing : "it could not be opened");
}

static void row_start(struct backends *backends, struct collective *collective)
{
    struct backend_row *row = row_of(backends, collective->choice);
    hvd_status status;
    hvd_code code = HVD_OK;
    if (!row || !row->state)
        code = refuse(backends, collective, row, &status);
    else if (row->worker)
        worker_start(row->worker, collective);
    else
        code = row->backend->start(row->state, collective, &status);
    if (code)
        collective->done(collective, &status);
    else
        row->progress = BACKEND_READY;
}

/* Hands the collective over to the last row if its own one can't be used. */
static hvd_code row_prepare(const struct backends *backends, struct collective *collective,
                            hvd_status *status)
{
    const struct backend_row *row = row_of(backends, collective->choice);
    if (!row || !row->state || !row->backend->prepare)
        return HVD_OK;
    hvd_code code = row->backend->prepare(row->state, collective, status);
    if (code != HVD_UNSUPPORTED)
        return code;
    collective->choice.backend = (uint8_t)(backends->count - 1);
    return HVD_OK;
}

static bool rows_fill(struct backends *backends)
{
    bool any = false;
    while (may_start(backends)) {
        hvd_status status;
        bool takes_turn = needs_turn(backends, backends->started.head);
        hvd_code code = row_prepare(backends, backends->started.head, &status);
        backends->prepares = code == HVD_IN_PROGRESS;
        if (backends->prepares)
            break;
        struct collective *collective = collective_queue_pop(&backends->started);
        if (takes_turn)
            backends->turns.use(backends->turns.owner);
        backends->exclusive = collective->exclusive;
        if (code)
            collective->done(collective, &status);
        else
            row_start(backends, collective);
        any = true;
    }
    return any;
}

/* ---- progress ----------------------------------------------------------------------------------------- */

bool backends_progress(struct backends *backends)
{
    bool moved = rows_fill(backends);
    for (int i = 0; i < backends->count; i++) {
        struct backend_row *row = &backends->rows[i];
        if (row->progress != BACKEND_DONE)
            row->progress = row->worker ? worker_progress(row->worker, &moved)
                                        : row->backend->progress(row->state, &moved);
    }
    return moved;
}

void backends_abort(struct backends *backends, const hvd_status *cause)
{
    backends->aborted = true;
    backends->prepares = false;
    for (int i = 0; i < backends->count; i++) {
        struct backend_row *row = &backends->rows[i];
        if (!row->state)
            continue;
        if (row->worker)
            worker_abort(row->worker, cause);
        else
            row->backend->abort(row->state, cause);
        /* progress runs once more, so that links and descriptor no longer announce anything. */
        row->progress = BACKEND_READY;
    }
    for (struct collective *collective; (collective = collective_queue_pop(&backends->started));)
        collective->done(collective, cause);
}

bool backends_idle(const struct backends *backends)
{
    return !backends->started.head && rows_idle(backends);
}

static bool any_row(const struct backends *backends, enum backend_progress progress)
{
    bool any = false;
    for (int i = 0; i < backends->count; i++)
        any |= backends->rows[i].progress == progress;
    return any;
}

bool backends_are_ready(const struct backends *backends)
{
    return (!backends->prepares && may_start(backends)) || any_row(backends, BACKEND_READY);
}

bool backends_poll(const struct backends *backends)
{
    return backends->prepares || any_row(backends, BACKEND_POLL);
}
