/* opening.c - from settings to links: listen, publish, read what the peers published, choose, connect. The
 * thread of mesh_open only. */
#include "transport/opening.h"

#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/status.h"
#include "transport/connector.h"

#include <errno.h>
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

static bool uses(const struct opening *opening, const char *transport)
{
    const char *setting = opening->config->settings->transport;
    return strcmp(setting, "auto") == 0 || strcmp(setting, transport) == 0;
}

static hvd_code listen_locally(struct opening *opening, hvd_status *status)
{
    char *name = opening->mine.local_name;
    hvd_code code = crypto_random_hex(name + sprintf(name, "horovod-"), RECORD_NAME_DIGITS, status);
    if (code)
        return code;
    opening->connector.local_listener = platform_local_listen(name);
    if (opening->connector.local_listener < 0)
        return status_set_errno(status, errno, "can't listen on a Unix socket");
    return HVD_OK;
}

static hvd_code listen_on_network(struct opening *opening, hvd_status *status)
{
    const char *interface = opening->config->settings->network_interface;
    hvd_code code = HVD_OK;
    if (*interface)
        code = socket_interface_address(interface, opening->mine.address, status);
    else
        snprintf(opening->mine.address, sizeof opening->mine.address, "%s",
                 rendezvous_local_address(opening->config->rendezvous));
    if (!code)
        code = socket_listen(opening->mine.address, &opening->connector.tcp_listener, &opening->mine.port,
                             status);
    return code;
}

static hvd_code listen_and_publish(struct opening *opening, hvd_status *status)
{
    hvd_code code = HVD_OK;
    opening->mine.process = getpid();
    gethostname(opening->mine.host, sizeof opening->mine.host - 1);
    platform_host_identity(opening->mine.host_identity, sizeof opening->mine.host_identity);
    if (uses(opening, "shm"))
        code = listen_locally(opening, status);
    if (!code && uses(opening, "tcp"))
        code = listen_on_network(opening, status);
    return code ? code : record_publish(opening->config, &opening->mine, status);
}

/* ---- who is missing ----------------------------------------------------------------------------------- */

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
    const struct record *record = &opening->records[i];
    return status_set(status, HVD_TIMED_OUT,
                      "%s has joined, but within %g s (HOROVOD_START_TIMEOUT) it and rank %d were not "
                      "connected%s%.300s; may their hosts reach each other at %s port %d and %s port %d?",
                      peer_text(peer, who, sizeof who), opening->config->settings->start_timeout_seconds,
                      opening->mesh->rank, peer->cause.code ? ": " : "", peer->cause.text, record->address,
                      record->port, opening->mine.address, opening->mine.port);
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
    /* Once the time is over the rest is only looked at, to name all who are missing. */
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
    char who[128];
    return status_set(status, HVD_UNSUPPORTED,
                      "rank %d (host %s) and %s have no transport in common: shared memory needs both on one "
                      "host, TCP needs HOROVOD_TRANSPORT=auto or tcp on both (here it is %s)",
                      opening->mesh->rank, opening->mine.host, peer_text(peer, who, sizeof who),
                      opening->config->settings->transport);
}

/* Without memory the offers are empty, and each pair agrees on TCP. Most sets of a job are idle most of the
 * time: their memory comes when it is used. */
static hvd_code make_segment(struct opening *opening, int local_peers, hvd_status *status)
{
    hvd_status fault;
    struct mesh *mesh = opening->mesh;
    size_t wanted = (size_t)opening->config->settings->shm_ring_bytes;
    hvd_code code =
        segment_create(local_peers, mesh->channels, wanted, mesh->hub == mesh, &mesh->segment, &fault);
    if (code && !uses(opening, "tcp"))
        return status_copy(status, &fault);
    if (code)
        log_warning(mesh->rank, "using TCP inside the host: %s", fault.text);
    return HVD_OK;
}

static hvd_code choose(struct opening *opening, hvd_status *status)
{
    int local_peers = 0;
    for (int i = 0; i < opening->mesh->peer_count; i++) {
        struct peer *peer = &opening->mesh->peers[i];
        if (record_can_share(&opening->mine, &opening->records[i]))
            peer->local_index = local_peers++;
        else if (!record_can_connect(&opening->mine, &opening->records[i]))
            return nothing_in_common(opening, peer, status);
    }
    return local_peers ? make_segment(opening, local_peers, status) : HVD_OK;
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

static hvd_code check_settings(struct mesh *mesh, const struct mesh_config *config, hvd_status *status)
{
    const struct settings *settings = config->settings;
    if (!path_rule_find(settings->shm_path, &mesh->path_rule))
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "path '%s' is unknown (HOROVOD_SHM_PATH); there are auto, ring, nontemporal and direct",
            settings->shm_path);
    if (!transport_is_known(settings->transport))
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

/* What only the opening needed. */
static void tidy(struct mesh *mesh)
{
    if (!mesh->segment)
        return;
    segment_close_fd(mesh->segment);
    if (!mesh->has[TRANSPORT_shm]) {
        segment_release(mesh->segment);
        mesh->segment = NULL;
    }
}

hvd_code opening_run(struct mesh *mesh, const struct mesh_config *config, hvd_status *status)
{
    struct opening opening = {.mesh = mesh, .config = config};
    opening.connector.tcp_listener = opening.connector.local_listener = -1;
    hvd_code code = check_settings(mesh, config, status);
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
    tidy(mesh);
    return code;
}
