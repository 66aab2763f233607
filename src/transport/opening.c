/* opening.c - from settings to links: listen, publish, read what the peers published, choose, connect; with
 * every transport of the table. The thread of mesh_open only. */
#include "transport/opening.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "transport/connector.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAMED_LIMIT 16 /* ranks listed in a text */

struct opening {
    struct mesh *mesh;
    const struct mesh_config *config;
    struct record mine;
    struct record *records; /* one per peer */
    struct connector connector;
};

/* ---- listening ---------------------------------------------------------------------------------------- */

static bool uses(const struct settings *settings, const struct transport *transport)
{
    return strcmp(settings->transport, "auto") == 0 || strcmp(settings->transport, transport->name) == 0;
}

static hvd_code listen_and_publish(struct opening *opening, hvd_status *status)
{
    const struct mesh_config *config = opening->config;
    struct record *mine = &opening->mine;
    hvd_code code = HVD_OK;
    mine->process = getpid();
    gethostname(mine->host, sizeof mine->host - 1);
    for (int row = 0; !code && transport_at(row); row++) {
        if (uses(config->settings, transport_at(row)))
            code = transport_at(row)->listen(opening->mesh, config, &opening->connector.listeners[row],
                                             mine->addresses[row], status);
    }
    return code ? code : record_publish(config, mine, status);
}

/* ---- missing ranks ----------------------------------------------------------------------------------- */

/* "rank 3 has", "ranks 3, 5 and 7 have"; `missing` is not empty. */
static void ranks_text(const int *missing, int count, char *text, size_t capacity)
{
    int named = count < NAMED_LIMIT ? count : NAMED_LIMIT;
    snprintf(text, capacity, count == 1 ? "rank %d" : "ranks %d", missing[0]);
    for (int i = 1; i < named; i++)
        append_text(text, capacity, i == count - 1 ? " and %d" : ", %d", missing[i]);
    if (named < count)
        append_text(text, capacity, " and %d more", count - named);
    append_text(text, capacity, count == 1 ? " has" : " have");
}

static hvd_code report_missing(const struct opening *opening, const int *missing, int count,
                               hvd_status *status)
{
    char ranks[NAMED_LIMIT * 10 + 64];
    ranks_text(missing, count, ranks, sizeof ranks);
    return status_set(
        status, HVD_TIMED_OUT,
        "%s not joined within %g s (HOROVOD_START_TIMEOUT); rank %d waits for it, see the output "
        "of what is missing",
        ranks, opening->config->settings->start_timeout_seconds, opening->mesh->rank);
}

static hvd_code report_unconnected(const struct opening *opening, hvd_status *status)
{
    char who[128];
    int i = 0;
    while (connector_peer_is_complete(&opening->mesh->peers[i]))
        i++;
    const struct peer *peer = &opening->mesh->peers[i];
    int row = 31 - __builtin_clz(peer->reachable); /* the last resort */
    return status_set(status, HVD_TIMED_OUT,
                      "%s has joined, but within %g s (HOROVOD_START_TIMEOUT) it and rank %d were not "
                      "connected%s%.300s; may their hosts reach each other at %s and %s?",
                      peer_text(peer, who, sizeof who), opening->config->settings->start_timeout_seconds,
                      opening->mesh->rank, peer->cause.code ? ": " : "", peer->cause.text,
                      opening->records[i].addresses[row], opening->mine.addresses[row]);
}

/* ---- records ------------------------------------------------------------------------------------------ */

static hvd_code take_record(struct opening *opening, int index, int64_t deadline, hvd_status *status)
{
    struct peer *peer = &opening->mesh->peers[index];
    struct record *record = &opening->records[index];
    hvd_code code;
    do {
        int64_t look = clock_earlier(deadline, clock_now() + RECORD_LOOK_INTERVAL);
        code = record_fetch(opening->config, peer->rank, look, record, status);
        if (code == HVD_TIMED_OUT && record_failure(opening->config, status))
            code = HVD_SYSTEM;
    } while (code == HVD_TIMED_OUT && clock_now() < deadline);
    if (code)
        return code;
    peer->process = record->process;
    snprintf(peer->host, sizeof peer->host, "%s", record->host);
    return HVD_OK;
}

static hvd_code fetch_records(struct opening *opening, hvd_status *status)
{
    int count = opening->mesh->peer_count, missing_count = 0;
    hvd_code code = HVD_OK;
    int *missing = calloc((size_t)count, sizeof *missing);
    opening->records = calloc((size_t)count, sizeof *opening->records);
    if (!missing || !opening->records)
        code = status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    /* Once the time is over the rest is only looked at, to name all missing ranks. */
    for (int i = 0; !code && i < count; i++) {
        code = take_record(opening, i, missing_count ? 0 : opening->config->deadline, status);
        if (code == HVD_TIMED_OUT) {
            missing[missing_count++] = opening->mesh->peers[i].rank;
            code = HVD_OK;
        }
    }
    if (!code && missing_count)
        code = report_missing(opening, missing, missing_count, status);
    free(missing);
    return code;
}

/* ---- choosing ----------------------------------------------------------------------------------------- */

static hvd_code nothing_in_common(const struct opening *opening, const struct peer *peer, hvd_status *status)
{
    char who[128], needs[512] = "";
    for (int row = 0; transport_at(row); row++)
        append_text(needs, sizeof needs, "%s%s needs %s", row ? ", " : "", transport_at(row)->name,
                    transport_at(row)->needs);
    return status_set(
        status, HVD_UNSUPPORTED,
        "rank %d (host %s) and %s have no transport in common: %s, and HOROVOD_TRANSPORT=auto or "
        "its name on both (here it is %s)",
        opening->mesh->rank, opening->mine.host, peer_text(peer, who, sizeof who), needs,
        opening->config->settings->transport);
}

static unsigned rows_that_reach(const struct record *mine, const struct record *theirs)
{
    unsigned rows = 0;
    for (int row = 0; transport_at(row); row++) {
        const char *here = mine->addresses[row], *there = theirs->addresses[row];
        if (*here && *there && transport_at(row)->reachable(here, there))
            rows |= 1U << row;
    }
    return rows;
}

/* Where one can't be prepared, each pair agrees on the next. */
static hvd_code prepare(struct opening *opening, int row, hvd_status *status)
{
    const struct mesh *mesh = opening->mesh;
    hvd_status fault;
    int count = 0;
    bool needed = false;
    for (int i = 0; i < mesh->peer_count; i++) {
        count += mesh->peers[i].reachable >> row & 1;
        needed |= mesh->peers[i].reachable == 1U << row;
    }
    if (!count || !transport_at(row)->prepare || !transport_at(row)->prepare(opening->mesh, count, &fault))
        return HVD_OK;
    if (needed)
        return status_copy(status, &fault);
    log_warning(mesh->rank, "using another transport than %s: %s", transport_at(row)->name, fault.text);
    return HVD_OK;
}

static hvd_code choose(struct opening *opening, hvd_status *status)
{
    hvd_code code = HVD_OK;
    for (int i = 0; i < opening->mesh->peer_count; i++) {
        struct peer *peer = &opening->mesh->peers[i];
        peer->reachable = rows_that_reach(&opening->mine, &opening->records[i]);
        if (!peer->reachable)
            return nothing_in_common(opening, peer, status);
    }
    for (int row = 0; !code && transport_at(row); row++)
        code = prepare(opening, row, status);
    return code;
}

static hvd_code connect_all(struct opening *opening, hvd_status *status)
{
    struct connector *connector = &opening->connector;
    connector->mesh = opening->mesh;
    connector->config = opening->config;
    connector->mine = &opening->mine;
    connector->records = opening->records;
    hvd_code code = connector_run(connector, status);
    return code == HVD_TIMED_OUT ? report_unconnected(opening, status) : code;
}

/* ---- all of it ---------------------------------------------------------------------------------------- */

static hvd_code check_settings(const struct mesh_config *config, hvd_status *status)
{
    const struct settings *settings = config->settings;
    bool known = false;
    for (int row = 0; transport_at(row); row++)
        known |= uses(settings, transport_at(row));
    if (!known)
        return status_set(status, HVD_INVALID_ARGUMENT, "transport '%s' is unknown (HOROVOD_TRANSPORT)",
                          settings->transport);
    if (strlen(settings->job) >= HANDSHAKE_JOB_LIMIT)
        return status_set(status, HVD_INVALID_ARGUMENT, "the name of the job is longer than %d bytes",
                          HANDSHAKE_JOB_LIMIT - 1);
    return HVD_OK;
}

/* Published before the listeners close: a peer whose connection is refused then finds the cause. */
static hvd_code settle_failure(const struct mesh_config *config, hvd_code code, hvd_status *status)
{
    bool own = code == HVD_OUT_OF_MEMORY || code == HVD_SYSTEM;
    if ((own || code == HVD_UNSUPPORTED) && record_failure(config, status))
        return HVD_SYSTEM;
    if (own)
        record_fail(config, status);
    return code;
}

hvd_code opening_run(struct mesh *mesh, const struct mesh_config *config, hvd_status *status)
{
    struct opening opening = {.mesh = mesh, .config = config};
    memset(opening.connector.listeners, -1, sizeof opening.connector.listeners);
    hvd_code code = check_settings(config, status);
    if (code || !mesh->peer_count)
        return code;
    code = listen_and_publish(&opening, status);
    if (!code)
        code = fetch_records(&opening, status);
    if (!code)
        code = choose(&opening, status);
    if (!code)
        code = connect_all(&opening, status);
    if (code && code != HVD_INTERRUPTED && code != HVD_TIMED_OUT)
        code = settle_failure(config, code, status);
    connector_free(&opening.connector);
    free(opening.records);
    for (int row = 0; transport_at(row); row++)
        if (mesh->states[row] && transport_at(row)->opened)
            transport_at(row)->opened(mesh);
    return code;
}
