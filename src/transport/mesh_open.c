/* mesh_open.c - from settings to links: listen, publish, read what the peers have published, choose, and
 * connect, with every transport of the table. The hub does once what all meshes share: its listeners stay
 * open, and the addresses that it has read serve for all. The thread of mesh_open only. */
#include "transport/mesh_open.h"

#include "base/clock.h"
#include "base/platform_poller.h"
#include "base/status.h"
#include "transport/address_record.h"
#include "transport/connector.h"
#include "transport/peer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAMED_LIMIT 16 /* ranks listed in a text */

struct opening {
    struct mesh *mesh;
    const struct mesh_config *config;
    const struct address_record *records, *mine; /* the hub's, by rank */
    struct connector *connector;                 /* the hub's, or for this opening only */
};

/* ---- listening ---------------------------------------------------------------------------------------- */

static bool uses(const struct settings *settings, const struct transport *transport)
{
    return strcmp(settings->transport, "auto") == 0 || strcmp(settings->transport, transport->name) == 0;
}

static hvd_code listen_at(struct mesh *hub, const struct mesh_config *config, int row,
                          struct address_record *mine, hvd_status *status)
{
    struct listeners listeners = {0};
    hvd_code code = transport_at(row)->listen(hub, config, &listeners, status);
    for (int i = 0; i < listeners.count; i++) {
        if (code)
            socket_close(&listeners.fds[i]);
        else
            code = admission_listen(&hub->acceptor->admission, listeners.fds[i], row, status);
    }
    if (!code && listeners.count && !(mine->addresses[row] = strdup(listeners.addresses)))
        code = status_no_memory(status);
    return code;
}

static hvd_code make_connector(struct mesh *hub, hvd_status *status)
{
    TRY(connector_create(hub, &hub->connector, status));
    hub->acceptor = calloc(1, sizeof *hub->acceptor);
    if (!hub->acceptor)
        return status_no_memory(status);
    acceptor_init(hub->acceptor, hub, hub->connector->poller);
    if (!connector_watch(hub->connector))
        return status_set_errno(status, errno, "rank %d can't wait for connections", hub->rank);
    return HVD_OK;
}

/* ---- missing ranks ----------------------------------------------------------------------------------- */

/* "rank 3 has not joined", "ranks 3, 5 and 7 have not joined"; `missing` is not empty. */
static hvd_code report_missing(const struct opening *opening, const int *missing, int count,
                               hvd_status *status)
{
    char ranks[NAMED_LIMIT * 10 + 64];
    int named = count < NAMED_LIMIT ? count : NAMED_LIMIT;
    snprintf(ranks, sizeof ranks, count == 1 ? "rank %d" : "ranks %d", missing[0]);
    for (int i = 1; i < named; i++)
        append_text(ranks, sizeof ranks, i == count - 1 ? " and %d" : ", %d", missing[i]);
    if (named < count)
        append_text(ranks, sizeof ranks, " and %d more", count - named);
    append_text(ranks, sizeof ranks, count == 1 ? " has" : " have");
    return status_set(
        status, HVD_TIMED_OUT,
        "%s not joined within %g s (HOROVOD_START_TIMEOUT); rank %d waits for it, see the output "
        "of what is missing",
        ranks, opening->config->settings->start_timeout_seconds, opening->mesh->rank);
}

/* ---- records ------------------------------------------------------------------------------------------ */

typedef hvd_code (*fetch_fn)(const struct mesh_config *config, int rank, int64_t deadline,
                             struct address_record *records, hvd_status *status);

/* Fetches until it is there, or the deadline has passed, or a peer has failed. */
static hvd_code await(const struct opening *opening, fetch_fn fetch, int rank, int64_t deadline,
                      struct address_record *records, hvd_status *status)
{
    hvd_code code;
    do {
        int64_t look = clock_earlier(deadline, clock_now() + ADDRESS_RECORD_LOOK_INTERVAL);
        code = fetch(opening->config, rank, look, records, status);
        if (code == HVD_TIMED_OUT && address_record_failure(opening->config, status))
            code = HVD_SYSTEM;
    } while (code == HVD_TIMED_OUT && clock_now() < deadline);
    return code;
}

/* Fetches the records one by one. After the deadline it only checks the remaining ones, to name all missing
 * ranks. */
static hvd_code collect(const struct opening *opening, int64_t deadline, struct address_record *records,
                        hvd_status *status)
{
    int size = (int)opening->config->settings->size, missing_count = 0;
    hvd_code code = HVD_OK;
    int *missing = calloc((size_t)size, sizeof *missing);
    if (!missing)
        return status_no_memory(status);
    for (int rank = 0; !code && rank < size; rank++) {
        if (rank == opening->mesh->rank)
            continue;
        code =
            await(opening, address_record_fetch, rank, missing_count ? 0 : deadline, &records[rank], status);
        if (code == HVD_TIMED_OUT) {
            missing[missing_count++] = rank;
            code = HVD_OK;
        }
    }
    if (!code && missing_count)
        code = report_missing(opening, missing, missing_count, status);
    free(missing);
    return code;
}

/* Rank 0 collects the records, and publishes tables of all; the others read these. */
static hvd_code fetch_records(const struct opening *opening, struct address_record *records,
                              hvd_status *status)
{
    const struct mesh_config *config = opening->config;
    hvd_code code = HVD_OK;
    if (opening->mesh->rank == 0)
        code = collect(opening, config->deadline, records, status);
    for (int first = 0; !code && first < config->settings->size; first += ADDRESS_RECORD_TABLE) {
        if (opening->mesh->rank == 0)
            code = address_record_publish_table(config, first, &records[first], status);
        else
            code =
                await(opening, address_record_fetch_table, first, config->deadline, &records[first], status);
    }
    /* Without the tables: which ranks are missing? */
    return code == HVD_TIMED_OUT && opening->mesh->rank ? collect(opening, 0, records, status) : code;
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
        opening->mesh->rank, opening->mine->host, peer_text(peer, who, sizeof who), needs,
        opening->config->settings->transport);
}

static unsigned rows_that_reach(const struct address_record *mine, const struct address_record *theirs)
{
    unsigned rows = 0;
    for (int row = 0; transport_at(row); row++) {
        const char *here = mine->addresses[row], *there = theirs->addresses[row];
        if (here && there && transport_at(row)->reachable(here, there))
            rows |= 1U << row;
    }
    return rows;
}

/* If a transport can't be prepared, each pair agrees on the next one. */
static hvd_code prepare(struct opening *opening, int row, hvd_status *status)
{
    const struct mesh *mesh = opening->mesh;
    hvd_status fault;
    bool reached = false, needed = false;
    for (int i = 0; i < mesh->peer_count; i++) {
        reached |= mesh->peers[i].reachable >> row & 1;
        needed |= mesh->peers[i].reachable == 1U << row;
    }
    if (!reached || !transport_at(row)->prepare || !transport_at(row)->prepare(opening->mesh, row, &fault))
        return HVD_OK;
    if (needed)
        return status_copy(status, &fault);
    log_warning(mesh->rank, "using another transport than %s: %s", transport_at(row)->name, fault.text);
    return HVD_OK;
}

static hvd_code choose(struct opening *opening, hvd_status *status)
{
    for (int i = 0; i < opening->mesh->peer_count; i++) {
        struct peer *peer = &opening->mesh->peers[i];
        const struct address_record *record = &opening->records[peer->rank];
        peer->reachable = rows_that_reach(opening->mine, record);
        peer->process = record->process;
        snprintf(peer->host, sizeof peer->host, "%s", record->host);
        if (!peer->reachable)
            return nothing_in_common(opening, peer, status);
    }
    for (int row = 0; transport_at(row); row++)
        TRY(prepare(opening, row, status));
    return HVD_OK;
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

/* Publishes a failure before connections end, so that a peer that loses its connection finds the cause. A
 * rank that has published one before it joined, or has ended, is lost: this system has refused nothing. */
static hvd_code publish_failure(const struct mesh_config *config, hvd_code code, hvd_status *status)
{
    bool own = code == HVD_OUT_OF_MEMORY || code == HVD_SYSTEM;
    if ((own || code == HVD_UNSUPPORTED) && address_record_failure(config, status))
        return status->code = config->hub ? HVD_SYSTEM : HVD_PEER_LOST;
    if (own)
        address_record_fail(config, status);
    return status->cause == HVD_CAUSE_CONNECTION ? status->code = HVD_PEER_LOST : code;
}

static hvd_code open_hub(const struct opening *opening, struct mesh *hub, hvd_status *status)
{
    const struct mesh_config *config = opening->config;
    TRY(check_settings(config, status));
    hub->settings = config->settings;
    hub->generation = config->generation;
    hub->records = calloc((size_t)config->settings->size, sizeof *hub->records);
    if (!hub->records)
        return status_no_memory(status);
    struct address_record *mine = &hub->records[hub->rank];
    mine->process = getpid();
    gethostname(mine->host, sizeof mine->host - 1);
    TRY(make_connector(hub, status));
    for (int row = 0; transport_at(row); row++)
        if (uses(config->settings, transport_at(row)))
            TRY(listen_at(hub, config, row, mine, status));
    TRY(address_record_publish(config, mine, status));
    return fetch_records(opening, hub->records, status);
}

static hvd_code run(struct opening *opening, hvd_status *status)
{
    struct mesh *mesh = opening->mesh;
    if (mesh->hub == mesh)
        TRY(open_hub(opening, mesh, status));
    opening->records = mesh->hub->records;
    opening->mine = opening->records + mesh->rank;
    TRY(choose(opening, status));
    if (mesh->hub == mesh)
        opening->connector = mesh->connector;
    else
        TRY(connector_create(mesh, &opening->connector, status));
    return connector_run(opening->connector, opening->config, status);
}

static hvd_code connect_mesh(struct mesh *mesh, const struct mesh_config *config, hvd_status *status)
{
    struct opening opening = {.mesh = mesh, .config = config};
    if (!mesh->peer_count)
        return HVD_OK;
    hvd_code code = run(&opening, status);
    if (code && code != HVD_INTERRUPTED && code != HVD_TIMED_OUT)
        code = publish_failure(config, code, status);
    if (mesh->hub != mesh)
        connector_free(opening.connector);
    return code;
}

/* ---- the mesh itself ---------------------------------------------------------------------------------- */

static int compare_ranks(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static hvd_code make_peers(struct mesh *mesh, const struct mesh_config *config, hvd_status *status)
{
    size_t count = (size_t)config->peer_count + 1; /* never 0 bytes */
    mesh->peers = calloc(count, sizeof *mesh->peers);
    mesh->links = calloc(count * (size_t)mesh->channels, sizeof(struct link *));
    mesh->linked = calloc(count, sizeof(struct peer *));
    if (!mesh->peers || !mesh->links || !mesh->linked)
        return status_no_memory(status);
    for (int i = 0; i < config->peer_count; i++) {
        struct peer *peer = &mesh->peers[i];
        *peer = (struct peer){.mesh = mesh, .rank = config->peers[i], .watched = -1};
        peer->links = mesh->links + (ptrdiff_t)i * mesh->channels;
        peer->neighbour =
            !config->neighbours || bsearch(&peer->rank, config->neighbours, (size_t)config->neighbour_count,
                                           sizeof peer->rank, compare_ranks);
        mesh->neighbours += peer->neighbour;
        mesh->index += peer->rank < mesh->rank;
    }
    mesh->peer_count = config->peer_count;
    return HVD_OK;
}

/* Makes the parts that also serve the other meshes. */
static hvd_code make_hub(struct mesh *mesh, hvd_status *status)
{
    mesh->slots = calloc(MESH_SLOTS, sizeof *mesh->slots);
    if (!mesh->slots)
        return status_no_memory(status);
    mesh->event = platform_event_create();
    mesh->wake_poller = platform_poller_create();
    mesh->poller = platform_poller_create();
    if (mesh->event < 0 || mesh->wake_poller < 0 || mesh->poller < 0 ||
        !platform_poller_add(mesh->wake_poller, mesh->poller, POLLER_READ, NULL))
        return status_set_errno(status, errno, "rank %d can't make its descriptors", mesh->rank);
    return HVD_OK;
}

static hvd_code open_mesh(struct mesh *mesh, const struct mesh_config *config, hvd_status *status)
{
    TRY(make_peers(mesh, config, status));
    if (config->hub)
        return connect_mesh(mesh, config, status);
    TRY(make_hub(mesh, status));
    TRY(connect_mesh(mesh, config, status));
    return mesh_attach(mesh, status);
}

hvd_code mesh_open(const struct mesh_config *config, struct mesh **mesh, hvd_status *status)
{
    struct mesh *opened = calloc(1, sizeof *opened);
    if (!opened)
        return status_no_memory(status);
    opened->hub = config->hub ? config->hub : opened;
    opened->number = config->number;
    opened->owner = config->owner;
    opened->rank = (int)config->settings->rank;
    opened->channels = config->channels;
    opened->striped_channel = config->striped_channel;
    opened->event = opened->wake_poller = opened->poller = -1;
    opened->next_report = CLOCK_NEVER;
    hvd_code code = open_mesh(opened, config, status);
    if (code)
        mesh_close(opened);
    else
        *mesh = opened;
    return code;
}

void mesh_open_failed(const struct mesh_config *config, const hvd_status *cause)
{
    address_record_fail(config, cause);
}
