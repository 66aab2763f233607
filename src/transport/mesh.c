/* mesh.c - the mesh in use: links, sleeping, losses. How it comes about is in opening.c. */
#include "base/clock.h"
#include "base/platform.h"
#include "base/socket.h"
#include "base/status.h"
#include "transport/opening.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEIGHBOURS = 256 }; /* on one host, whose cores are looked at */

#define NEWS_PER_CALL 64

static const char *const transport_names[] = {
#define TRANSPORT(name) #name,
#include "transport/transports.def"
#undef TRANSPORT
};

/* ---- life --------------------------------------------------------------------------------------------- */

static hvd_code make_peers(struct mesh *mesh, const struct mesh_config *config, hvd_status *status)
{
    mesh->peers = calloc((size_t)config->peer_count + 1, sizeof *mesh->peers); /* never 0 bytes */
    if (!mesh->peers)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    for (int i = 0; i < config->peer_count; i++) {
        struct peer *peer = &mesh->peers[i];
        *peer = (struct peer){.mesh = mesh, .rank = config->peers[i], .doorbell = -1, .local_index = -1};
        mesh->peer_count++;
        peer->links = calloc((size_t)mesh->channels, sizeof *peer->links);
        if (!peer->links)
            return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    }
    return HVD_OK;
}

static hvd_code make_descriptors(struct mesh *mesh, hvd_status *status)
{
    mesh->event = platform_event_create();
    mesh->bell = platform_poller_create();
    mesh->sockets = platform_poller_create();
    if (mesh->event < 0 || mesh->bell < 0 || mesh->sockets < 0 ||
        !platform_poller_add(mesh->bell, mesh->event, POLLER_READ, NULL) ||
        !platform_poller_add(mesh->bell, mesh->sockets, 0, NULL))
        return status_set_errno(status, errno, "rank %d can't make its descriptors", mesh->rank);
    return HVD_OK;
}

hvd_code mesh_open(const struct mesh_config *config, struct mesh **mesh, hvd_status *status)
{
    struct mesh *opened = calloc(1, sizeof *opened);
    if (!opened)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    opened->rank = (int)config->settings->rank;
    opened->channels = config->channels;
    opened->event = opened->bell = opened->sockets = opened->parent_bell = -1;
    hvd_code code = make_peers(opened, config, status);
    if (!code)
        code = make_descriptors(opened, status);
    if (!code)
        code = opening_run(opened, config, status);
    if (code) {
        mesh_close(opened);
        return code;
    }
    *mesh = opened;
    return HVD_OK;
}

/* Channel 0 ends first: by it the peer sees that this was meant. */
static void close_peer(struct peer *peer)
{
    for (int channel = 0; peer->links && channel < peer->mesh->channels; channel++) {
        if (peer->links[channel])
            peer->links[channel]->operations->close(peer->links[channel]);
    }
    free(peer->links);
    socket_close(&peer->doorbell);
    lending_end(&peer->lending);
    segment_release(peer->segment);
}

void mesh_close(struct mesh *mesh)
{
    if (!mesh)
        return;
    if (mesh->parent_bell >= 0)
        platform_poller_remove(mesh->parent_bell, mesh->bell);
    for (int i = 0; i < mesh->peer_count; i++)
        close_peer(&mesh->peers[i]);
    segment_release(mesh->segment);
    socket_close(&mesh->event);
    socket_close(&mesh->bell);
    socket_close(&mesh->sockets);
    free(mesh->peers);
    free(mesh);
}

void mesh_abandon(struct mesh *mesh)
{
    if (!mesh)
        return;
    for (int i = 0; i < mesh->peer_count; i++) {
        struct peer *peer = &mesh->peers[i];
        for (int channel = 0; channel < mesh->channels; channel++)
            peer->links[channel]->operations->abandon(peer->links[channel]);
        socket_close(&peer->doorbell);
    }
    socket_close(&mesh->event);
    socket_close(&mesh->bell);
    socket_close(&mesh->sockets);
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

int mesh_next_peer(const struct mesh *mesh, int rank)
{
    for (int i = 0; i < mesh->peer_count; i++) {
        if (mesh->peers[i].rank > rank)
            return mesh->peers[i].rank;
    }
    return -1;
}

struct link *mesh_link(struct mesh *mesh, int peer, int channel)
{
    const struct peer *found = mesh_peer(mesh, peer);
    return found ? found->links[channel] : NULL;
}

const char *mesh_transport_name(const struct mesh *mesh, int peer)
{
    const struct peer *found = mesh_peer(mesh, peer);
    return found ? transport_names[found->transport] : "none";
}

bool transport_is_known(const char *name)
{
    bool known = strcmp(name, "auto") == 0;
    for (int i = 0; i < TRANSPORT_COUNT; i++)
        known |= strcmp(name, transport_names[i]) == 0;
    return known;
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

void peer_lose(struct peer *peer, int error)
{
    char who[MESH_PEER_TEXT];
    if (peer->lost)
        return;
    peer->lost = true;
    peer->mesh->untold += !peer->expected;
    if (peer->doorbell >= 0) /* its end would keep the sleeper awake */
        platform_poller_remove(peer->mesh->bell, peer->doorbell);
    peer_text(peer, who, sizeof who);
    if (error == EBADMSG) {
        status_set(&peer->cause, HVD_PEER_LOST,
                   "gave up %s: it points to memory that it has not shared; either its memory is corrupt, or "
                   "it runs another version of Horovod",
                   who);
    } else if (error == ECANCELED) {
        status_set(&peer->cause, HVD_PEER_LOST,
                   "gave up %s: it ended an operation whose data this rank still read; see its output", who);
    } else if (error == 0 || error == ECONNRESET || error == EPIPE) {
        status_set(
            &peer->cause, HVD_PEER_LOST,
            "lost %s: its connection was closed without goodbye; it was probably killed or crashed, see "
            "its output",
            who);
    } else {
        status_set_errno(&peer->cause, error, "lost %s: the connection failed", who);
        peer->cause.code = HVD_PEER_LOST;
    }
}

char mesh_peer_state(const struct mesh *mesh, int peer, char *who, size_t capacity)
{
    const struct peer *found = mesh_peer(mesh, peer);
    peer_text(found, who, capacity);
    return found->doorbell < 0 ? '\0' : platform_peer_state(found->doorbell);
}

void mesh_expect_end(struct mesh *mesh, int peer)
{
    struct peer *found = mesh_peer(mesh, peer);
    if (!found || found->expected)
        return;
    found->expected = true;
    mesh->untold -= found->lost && !found->told;
}

int mesh_next_lost(struct mesh *mesh, hvd_status *status)
{
    for (int i = 0; mesh->untold && i < mesh->peer_count; i++) {
        struct peer *peer = &mesh->peers[i];
        if (peer->lost && !peer->expected && !peer->told) {
            peer->told = true;
            mesh->untold--;
            status_copy(status, &peer->cause);
            return peer->rank;
        }
    }
    return -1;
}

/* ---- news and sleep ----------------------------------------------------------------------------------- */

void mesh_poll(struct mesh *mesh)
{
    struct poller_news news[NEWS_PER_CALL];
    if (mesh->has[TRANSPORT_tcp])
        tcp_poll(mesh);
    if (!mesh->has[TRANSPORT_shm])
        return;
    int count = platform_poller_take(mesh->bell, news, NEWS_PER_CALL);
    for (int i = 0; i < count; i++) {
        if (news[i].tag)
            shm_poll(news[i].tag);
    }
}

static bool any_news(const struct mesh *mesh)
{
    for (int i = 0; i < mesh->peer_count; i++) {
        for (int channel = 0; channel < mesh->channels; channel++) {
            struct link *link = mesh->peers[i].links[channel];
            if ((link->want_read || link->want_write || link->want_taken) && link->operations->news(link))
                return true;
        }
    }
    return false;
}

bool mesh_arm(struct mesh *mesh)
{
    if (mesh->segment)
        atomic_store(&mesh->segment->memory->sleeping, 1);
    if (mesh->has[TRANSPORT_tcp])
        platform_poller_change(mesh->bell, mesh->sockets, POLLER_READ, NULL);
    return !mesh->untold && !any_news(mesh);
}

void mesh_disarm(struct mesh *mesh)
{
    if (mesh->segment)
        atomic_store(&mesh->segment->memory->sleeping, 0);
    if (mesh->has[TRANSPORT_tcp])
        platform_poller_change(mesh->bell, mesh->sockets, 0, NULL);
}

void mesh_attach(struct mesh *mesh, struct mesh *other)
{
    other->parent_bell = mesh->bell;
    platform_poller_add(mesh->bell, other->bell, POLLER_READ, NULL);
}

void mesh_sleep(struct mesh *mesh, int64_t deadline)
{
    platform_poller_wait(mesh->bell, deadline);
    platform_event_clear(mesh->event);
}

void mesh_wake(struct mesh *mesh)
{
    platform_event_set(mesh->event);
}

/* Where the peer last began to wait; -1: unknown. */
static int core_of(const struct peer *peer)
{
    return peer->segment ? atomic_load_explicit(&peer->segment->memory->core, memory_order_relaxed) - 1 : -1;
}

bool mesh_shares_core(struct mesh *mesh, int core)
{
    bool shares = false;
    if (mesh->segment)
        atomic_store_explicit(&mesh->segment->memory->core, core + 1, memory_order_relaxed);
    for (int i = 0; i < mesh->peer_count; i++)
        shares |= core_of(&mesh->peers[i]) == core;
    return shares;
}

void mesh_leave_core(struct mesh *mesh, int core)
{
    int taken[NEIGHBOURS], count = 0;
    bool yields = false;
    for (int i = 0; i < mesh->peer_count && count < NEIGHBOURS; i++) {
        taken[count++] = core_of(&mesh->peers[i]);
        yields |= taken[count - 1] == core && mesh->peers[i].rank < mesh->rank;
    }
    if (yields)
        platform_thread_leave(taken, count);
}
