/* peer.c - the peers of a mesh as transports and the set-up of links see them: who they are, which
 * descriptors report their news, and their loss. It calls no other file of this folder but transport.c. */
#include "transport/peer.h"

#include "base/clock.h"
#include "base/platform_poller.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* How long the cause of a peer's end may take by other ways. */
#define CAUSE_TIME CLOCK_SECOND

/* ---- the mesh ------------------------------------------------------------------------------------------ */

void **mesh_state(struct mesh *mesh, const struct transport *transport)
{
    int row = 0;
    while (transport_at(row) != transport)
        row++;
    return &mesh->states[row];
}

struct mesh **mesh_slot(const struct mesh *hub, unsigned number)
{
    return &hub->slots[number % MESH_SLOTS];
}

struct mesh *mesh_attached(const struct mesh *hub, unsigned number)
{
    struct mesh *mesh = *mesh_slot(hub, number);
    while (mesh && mesh->number != number)
        mesh = mesh->next;
    return mesh;
}

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

/* ---- news ---------------------------------------------------------------------------------------------- */

bool mesh_reports(const struct mesh *mesh)
{
    return mesh->neighbours > MESH_POLLED_NEIGHBOURS;
}

void mesh_report(struct mesh *mesh, int index)
{
    if (mesh_reports(mesh))
        mesh->news[index % MESH_NEWS_BITS / 64] |= (uint64_t)1 << index % 64;
}

void peer_report(const struct peer *peer)
{
    struct mesh *mesh = peer->mesh;
    mesh_report(mesh, (int)(peer - mesh->peers) + (peer->rank > mesh->rank));
}

void mesh_set_sleeping(struct mesh *mesh, bool value)
{
    for (int i = 0; i < mesh->used_count; i++)
        if (mesh->used[i]->arm)
            mesh->used[i]->arm(mesh, value);
}

void mesh_resume(struct mesh *mesh)
{
    if (mesh->suspended)
        mesh_set_sleeping(mesh, false);
    mesh->suspended = false;
}

void mesh_resume_for_news(struct mesh *mesh)
{
    if (!mesh->suspended)
        return;
    mesh_resume(mesh);
    mesh->listed = true;
    mesh->next_resumed = mesh->hub->resumed;
    mesh->hub->resumed = mesh;
}

/* ---- descriptors in the poller of the hub -------------------------------------------------------------- */

static void peer_ready(void *owner, unsigned what)
{
    struct peer *peer = owner;
    (void)what;
    peer->transport->poll(peer);
}

bool mesh_watch_peer(struct peer *peer, int fd)
{
    struct mesh *hub = peer->mesh->hub;
    peer->watched = fd;
    peer->watch = (struct watch){peer_ready, peer};
    hub->watches = true;
    return platform_poller_add(hub->poller, fd, POLLER_READ, &peer->watch);
}

static void link_ready(void *owner, unsigned what)
{
    struct link *link = owner;
    link->operations->ready(link, what);
}

bool mesh_watch_link(const struct peer *peer, int fd, struct link *link)
{
    struct mesh *hub = peer->mesh->hub;
    link->watch = (struct watch){link_ready, link};
    hub->watches = hub->watches_links = true;
    return platform_poller_add(hub->poller, fd, POLLER_READ | POLLER_WRITE | POLLER_EDGE, &link->watch);
}

void peer_unwatch(struct peer *peer)
{
    if (peer->watched >= 0)
        platform_poller_remove(peer->mesh->hub->poller, peer->watched);
    peer->watched = -1;
}

/* ---- losses -------------------------------------------------------------------------------------------- */

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
    status_blame(&peer->cause, HVD_CAUSE_CONNECTION, peer->rank, peer->host);
    peer_report(peer);  /* a process that is killed sets no mark */
    peer_unwatch(peer); /* its end would keep the sleeper awake */
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
