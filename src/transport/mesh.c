/* mesh.c - a mesh in use: its links, and which of them are lost. How it comes about is in opening.c, how its
 * news are found and awaited in news.c. */
#include "base/clock.h"
#include "base/platform.h"
#include "base/socket.h"
#include "base/status.h"
#include "transport/opening.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long the cause of a peer's end may take by other ways. */
#define CAUSE_TIME CLOCK_SECOND

/* ---- the table of transports -------------------------------------------------------------------------- */

/* Ends in NULL. */
static const struct transport *rows[TRANSPORT_LIMIT + 1] = {
#define TRANSPORT(name) &transport_##name,
#include "transport/transports.def"
#undef TRANSPORT
};

const struct transport *transport_at(int row)
{
    return rows[row];
}

void transport_add(const struct transport *transport)
{
    int row = 0;
    while (rows[row])
        row++;
    assert(row < TRANSPORT_LIMIT);
    rows[row] = transport;
}

void **mesh_state(struct mesh *mesh, const struct transport *transport)
{
    int row = 0;
    while (rows[row] != transport)
        row++;
    return &mesh->states[row];
}

/* ---- life --------------------------------------------------------------------------------------------- */

static int compare_ranks(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static bool is_neighbour(const struct mesh_config *config, int rank)
{
    return !config->neighbours ||
           bsearch(&rank, config->neighbours, (size_t)config->neighbour_count, sizeof rank, compare_ranks);
}

static hvd_code make_peers(struct mesh *mesh, const struct mesh_config *config, hvd_status *status)
{
    size_t count = (size_t)config->peer_count + 1; /* never 0 bytes */
    mesh->peers = calloc(count, sizeof *mesh->peers);
    mesh->links = calloc(count * (size_t)mesh->channels, sizeof(struct link *));
    mesh->linked = calloc(count, sizeof(struct peer *));
    if (!mesh->peers || !mesh->links || !mesh->linked)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    for (int i = 0; i < config->peer_count; i++) {
        struct peer *peer = &mesh->peers[i];
        *peer = (struct peer){.mesh = mesh, .rank = config->peers[i], .watched = -1};
        peer->links = mesh->links + (ptrdiff_t)i * mesh->channels;
        peer->neighbour = is_neighbour(config, peer->rank);
        mesh->neighbours += peer->neighbour;
        mesh->index += peer->rank < mesh->rank;
    }
    mesh->peer_count = config->peer_count;
    return HVD_OK;
}

/* What serves the other meshes, too. */
static hvd_code make_hub(struct mesh *mesh, hvd_status *status)
{
    mesh->slots = calloc(MESH_SLOTS, sizeof *mesh->slots);
    if (!mesh->slots)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    mesh->event = platform_event_create();
    mesh->wake_poller = platform_poller_create();
    mesh->poller = platform_poller_create();
    if (mesh->event < 0 || mesh->wake_poller < 0 || mesh->poller < 0 ||
        !platform_poller_add(mesh->wake_poller, mesh->poller, POLLER_READ, NULL))
        return status_set_errno(status, errno, "rank %d can't make its descriptors", mesh->rank);
    return HVD_OK;
}

bool peer_linked(struct peer *peer)
{
    struct mesh *mesh = peer->mesh;
    int i = 0;
    while (i < mesh->used_count && mesh->used[i] != peer->transport)
        i++;
    mesh->used[i] = peer->transport;
    mesh->used_count += i == mesh->used_count;
    peer->linked = true;
    mesh->linked[mesh->linked_count++] = peer;
    mesh_resume_for_news(mesh);
    return !mesh->attached || peer->transport->attach(peer);
}

hvd_code mesh_open(const struct mesh_config *config, struct mesh **mesh, hvd_status *status)
{
    struct mesh *opened = calloc(1, sizeof *opened);
    if (!opened)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    opened->hub = config->hub ? config->hub : opened;
    opened->number = config->number;
    opened->owner = config->owner;
    opened->rank = (int)config->settings->rank;
    opened->channels = config->channels;
    opened->striped_channel = config->striped_channel;
    opened->event = opened->wake_poller = opened->poller = -1;
    opened->next_report = CLOCK_NEVER;
    hvd_code code = make_peers(opened, config, status);
    if (!code && !config->hub)
        code = make_hub(opened, status);
    if (!code)
        code = opening_run(opened, config, status);
    if (!code && !config->hub)
        code = mesh_attach(opened, status);
    if (code) {
        mesh_close(opened);
        return code;
    }
    *mesh = opened;
    return HVD_OK;
}

void mesh_open_failed(const struct mesh_config *config, const hvd_status *cause)
{
    record_fail(config, cause);
}

static void unwatch(struct peer *peer)
{
    if (peer->watched >= 0)
        platform_poller_remove(peer->mesh->hub->poller, peer->watched);
    peer->watched = -1;
}

static void close_peer(struct peer *peer)
{
    unwatch(peer);
    if (peer->state)
        peer->transport->close_peer(peer);
}

static struct mesh **slot_of(const struct mesh *hub, unsigned number)
{
    return &hub->slots[number % MESH_SLOTS];
}

hvd_code mesh_attach(struct mesh *mesh, hvd_status *status)
{
    struct mesh *hub = mesh->hub;
    struct mesh **slot = slot_of(hub, mesh->number);
    mesh->next = *slot;
    *slot = mesh;
    mesh->attached = true;
    for (int i = 0; i < mesh->linked_count; i++) {
        struct peer *peer = mesh->linked[i];
        if (!peer->transport->attach(peer))
            return status_set_errno(status, errno, "rank %d can't wait for news of rank %d", mesh->rank,
                                    peer->rank);
        if (peer->hub && peer->hub->lost)
            peer_give_up(peer, &peer->hub->cause);
    }
    if (hub->connector)
        hub->connector->next = 0; /* connections for this mesh may have come in already */
    return HVD_OK;
}

static void detach(struct mesh *mesh)
{
    struct mesh **at = slot_of(mesh->hub, mesh->number);
    while (*at != mesh)
        at = &(*at)->next;
    *at = mesh->next;
    at = &mesh->hub->resumed;
    while (*at && *at != mesh)
        at = &(*at)->next_resumed;
    if (*at)
        *at = mesh->next_resumed;
}

void mesh_close(struct mesh *mesh)
{
    if (!mesh)
        return;
    if (mesh->attached) {
        connector_forget(mesh->hub->connector, mesh);
        detach(mesh);
    }
    if (mesh->acceptor)
        acceptor_close(mesh->acceptor);
    free(mesh->acceptor);
    connector_free(mesh->connector);
    for (int i = 0; i < mesh->peer_count; i++)
        close_peer(&mesh->peers[i]);
    for (int row = 0; rows[row]; row++)
        if (mesh->states[row])
            rows[row]->close_mesh(mesh);
    free(mesh->links);
    free(mesh->linked);
    for (int rank = 0; mesh->records && rank < (int)mesh->settings->size; rank++)
        record_free(&mesh->records[rank]);
    free(mesh->records);
    free(mesh->slots);
    socket_close(&mesh->event);
    socket_close(&mesh->wake_poller);
    socket_close(&mesh->poller);
    free(mesh->peers);
    free(mesh);
}

void mesh_abandon(struct mesh *mesh)
{
    if (!mesh)
        return;
    for (int i = 0; i < mesh->peer_count; i++)
        if (mesh->peers[i].state)
            mesh->peers[i].transport->abandon(&mesh->peers[i]);
    if (mesh->acceptor)
        acceptor_abandon(mesh->acceptor);
    if (mesh->connector)
        connector_abandon(mesh->connector);
    socket_close(&mesh->event);
    socket_close(&mesh->wake_poller);
    socket_close(&mesh->poller);
}

struct mesh *mesh_attached(const struct mesh *hub, unsigned number)
{
    struct mesh *mesh = *slot_of(hub, number);
    while (mesh && mesh->number != number)
        mesh = mesh->next;
    return mesh;
}

void *mesh_find(const struct mesh *hub, unsigned number)
{
    const struct mesh *mesh = mesh_attached(hub, number);
    return mesh ? mesh->owner : NULL;
}

/* ---- links -------------------------------------------------------------------------------------------- */

static int compare_rank(const void *rank, const void *peer)
{
    return *(const int *)rank - ((const struct peer *)peer)->rank;
}

struct peer *mesh_peer(const struct mesh *mesh, int rank)
{
    return bsearch(&rank, mesh->peers, (size_t)mesh->peer_count, sizeof *mesh->peers, compare_rank);
}

int peer_index(const struct peer *peer, int row)
{
    int index = 0;
    for (const struct peer *at = peer->mesh->peers; at < peer; at++)
        index += at->reachable >> row & 1;
    return index;
}

int mesh_next_peer(const struct mesh *mesh, int rank)
{
    for (int i = 0; i < mesh->peer_count; i++) {
        if (mesh->peers[i].rank > rank && mesh->peers[i].linked)
            return mesh->peers[i].rank;
    }
    return -1;
}

struct link *mesh_link(struct mesh *mesh, int peer, int channel)
{
    struct peer *found = mesh_peer(mesh, peer);
    if (!found || found->linked)
        return found ? found->links[channel] : NULL;
    if (!found->wanted && !found->lost)
        connector_want(mesh->hub->connector, found);
    return NULL;
}

const char *mesh_transport_name(const struct mesh *mesh, int peer)
{
    const struct peer *found = mesh_peer(mesh, peer);
    return found && found->transport ? found->transport->name : "none";
}

/* ---- losses ------------------------------------------------------------------------------------------- */

const char *peer_text(const struct peer *peer, char *text, size_t capacity)
{
    if (peer->host[0])
        snprintf(text, capacity, "rank %d (pid %ld, host %s)", peer->rank, peer->process, peer->host);
    else
        snprintf(text, capacity, "rank %d", peer->rank);
    return text;
}

static void lose(struct peer *peer, const hvd_status *cause)
{
    if (peer->lost)
        return;
    peer->lost = true;
    peer->mesh->unreported += !peer->expected;
    peer->report_at = peer->mesh->hub->next_report = clock_now() + CAUSE_TIME;
    status_copy(&peer->cause, cause);
    peer_report(peer); /* a process that is killed sets no mark */
    unwatch(peer);     /* its end would keep the sleeper awake */
    mesh_resume_for_news(peer->mesh);
}

/* The other meshes see a process end by the hub's connection to it. */
static void lose_in_all(const struct peer *peer)
{
    const struct mesh *hub = peer->mesh;
    for (unsigned slot = 0; slot < MESH_SLOTS; slot++) {
        for (struct mesh *at = hub->slots[slot]; at; at = at->next) {
            struct peer *same = mesh_peer(at, peer->rank);
            if (same && same->hub == peer)
                lose(same, &peer->cause);
        }
    }
}

void peer_give_up(struct peer *peer, const hvd_status *cause)
{
    if (peer->lost)
        return;
    lose(peer, cause);
    if (peer->mesh->slots)
        lose_in_all(peer);
}

void peer_lose(struct peer *peer, int error)
{
    hvd_status cause;
    char who[MESH_PEER_TEXT];
    if (peer->lost)
        return;
    peer_text(peer, who, sizeof who);
    if (error == 0 || error == ECONNRESET || error == EPIPE)
        status_set(&cause, HVD_PEER_LOST,
                   "lost %s: its connection was closed without the shutdown handshake; it was probably "
                   "killed or crashed, see "
                   "its output",
                   who);
    else
        status_set_errno(&cause, error, "lost %s: the connection failed", who);
    cause.code = HVD_PEER_LOST;
    peer_give_up(peer, &cause);
}

int mesh_find_broken(struct mesh *mesh, unsigned limit, char *path, size_t capacity)
{
    int broken = -1;
    for (int i = 0; i < mesh->linked_count; i++) {
        struct peer *peer = mesh->linked[i];
        if (!peer->lost && peer->transport->find_broken &&
            peer->transport->find_broken(peer, limit, path, capacity))
            broken = peer->rank;
    }
    return broken;
}

char mesh_peer_state(const struct mesh *mesh, int peer, char *who, size_t capacity)
{
    const struct peer *found = mesh_peer(mesh, peer);
    if (!found) { /* this rank */
        snprintf(who, capacity, "rank %d", peer);
        return '\0';
    }
    peer_text(found, who, capacity);
    return found->linked && found->transport->process_state ? found->transport->process_state(found) : '\0';
}

const char *mesh_peer_host(const struct mesh *mesh, int peer)
{
    const struct peer *found = mesh_peer(mesh, peer);
    return found ? found->host : NULL;
}

void mesh_expect_end(struct mesh *mesh, int peer)
{
    struct peer *found = mesh_peer(mesh, peer);
    if (!found || found->expected)
        return;
    found->expected = true;
    mesh->unreported -= found->lost && !found->reported;
}

static bool is_drained(const struct peer *peer)
{
    return peer->neighbour &&
           (!peer->linked || !peer->transport->is_drained || peer->transport->is_drained(peer));
}

/* Of the losses that may be reported; or NULL. */
static struct peer *next_lost(const struct mesh *mesh)
{
    for (int i = 0; mesh->unreported && i < mesh->peer_count; i++) {
        struct peer *peer = &mesh->peers[i];
        if (peer->lost && !peer->expected && !peer->reported &&
            (is_drained(peer) || clock_now() >= peer->report_at))
            return peer;
    }
    return NULL;
}

bool mesh_has_lost(const struct mesh *mesh)
{
    return next_lost(mesh) != NULL;
}

int mesh_next_lost(struct mesh *mesh, hvd_status *status)
{
    struct peer *peer = next_lost(mesh);
    if (!peer)
        return -1;
    peer->reported = true;
    mesh->unreported--;
    status_copy(status, &peer->cause);
    return peer->rank;
}
