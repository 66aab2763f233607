/* mesh.c - a mesh in use: its links, which of its peers are lost, and how a thread finds news of it, or
 * sleeps until there are some. How it comes about is in mesh_open.c. */
#include "transport/mesh.h"

#include "base/clock.h"
#include "base/platform_cores.h"
#include "base/platform_poller.h"
#include "base/status.h"
#include "net/socket.h"
#include "transport/address_record.h"
#include "transport/connector.h"
#include "transport/peer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEIGHBOURS = 256 }; /* on one host, the cores of which are compared */

#define NEWS_PER_CALL 64

/* ---- life --------------------------------------------------------------------------------------------- */

static void close_peer(struct peer *peer)
{
    peer_unwatch(peer);
    if (peer->state)
        peer->transport->close_peer(peer);
}

hvd_code mesh_attach(struct mesh *mesh, hvd_status *status)
{
    struct mesh *hub = mesh->hub;
    struct mesh **slot = mesh_slot(hub, mesh->number);
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
    struct mesh **at = mesh_slot(mesh->hub, mesh->number);
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
    for (int row = 0; transport_at(row); row++)
        if (mesh->states[row])
            transport_at(row)->close_mesh(mesh);
    free(mesh->links);
    free(mesh->linked);
    for (int rank = 0; mesh->records && rank < (int)mesh->settings->size; rank++)
        address_record_free(&mesh->records[rank]);
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

void *mesh_find(const struct mesh *hub, unsigned number)
{
    const struct mesh *mesh = mesh_attached(hub, number);
    return mesh ? mesh->owner : NULL;
}

/* ---- links -------------------------------------------------------------------------------------------- */

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

/* Returns a peer whose loss may be reported, or NULL. */
static struct peer *next_lost(const struct mesh *mesh)
{
    for (int i = 0; mesh->unreported && i < mesh->peer_count; i++) {
        struct peer *peer = &mesh->peers[i];
        if (peer->lost && !peer->expected && !peer->reported &&
            (is_drained(peer) || mesh->hub->polled >= peer->report_at))
            return peer;
    }
    return NULL;
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

/* ---- what peers report -------------------------------------------------------------------------------- */

static bool gather_news(struct mesh *mesh)
{
    uint64_t any = 0;
    if (!mesh_reports(mesh))
        return false;
    for (int i = 0; i < mesh->used_count; i++)
        if (mesh->used[i]->collect_marks)
            mesh->used[i]->collect_marks(mesh);
    for (int word = 0; word < MESH_NEWS_BITS / 64; word++)
        any |= mesh->news[word];
    return any;
}

void mesh_collect_news(struct mesh *mesh, uint64_t news[MESH_NEWS_BITS / 64])
{
    gather_news(mesh);
    memcpy(news, mesh->news, sizeof mesh->news);
    memset(mesh->news, 0, sizeof mesh->news);
}

/* ---- what the kernel reports -------------------------------------------------------------------------- */

bool mesh_watch(struct mesh *mesh, int descriptor)
{
    return platform_poller_add(mesh->hub->wake_poller, descriptor, POLLER_READ, NULL);
}

void mesh_unwatch(struct mesh *mesh, int descriptor)
{
    platform_poller_remove(mesh->hub->wake_poller, descriptor);
}

/* ---- polling and sleep -------------------------------------------------------------------------------- */

void mesh_poll(struct mesh *hub)
{
    struct poller_news news[NEWS_PER_CALL];
    int64_t before = hub->next_report == CLOCK_NEVER ? 0 : clock_now();
    int count = hub->watches ? platform_poller_read(hub->poller, news, NEWS_PER_CALL) : 0;
    for (int i = 0; i < count; i++) {
        const struct watch *watch = news[i].tag;
        watch->ready(watch->owner, news[i].what);
    }
    if (before)
        hub->polled = before;
    if (hub->next_report <= before)
        hub->next_report = CLOCK_NEVER;
    int64_t deadline = mesh_deadline(hub), now = deadline == CLOCK_NEVER ? 0 : clock_now();
    if (deadline > now)
        return;
    if (hub->connector && hub->connector->next <= now)
        connector_turn_logged(hub->connector);
}

int64_t mesh_deadline(const struct mesh *hub)
{
    return clock_earlier(hub->next_report, hub->connector ? hub->connector->next : CLOCK_NEVER);
}

static bool any_news(struct mesh *mesh)
{
    bool any = gather_news(mesh);
    for (struct link **next = &mesh->awaited, *link; !any && (link = *next);) {
        link->awaited = link->want_read || link->want_write || link->want_taken;
        any = link->awaited && link->operations->news(link);
        if (link->awaited)
            next = &link->next_awaited;
        else
            *next = link->next_awaited;
    }
    return any;
}

static void mask(struct mesh *hub, bool value)
{
    if (hub->masked == value || !hub->watches_links)
        return;
    hub->masked = value;
    platform_poller_change(hub->wake_poller, hub->poller, value ? 0 : POLLER_READ, NULL);
}

bool mesh_arm(struct mesh *mesh)
{
    const struct mesh *hub = mesh->hub;
    mesh_set_sleeping(mesh, true);
    mask(mesh->hub, false);
    return !next_lost(mesh) && !any_news(mesh) && !hub->resumed &&
           !(hub->signaled && atomic_load(hub->signaled));
}

void mesh_disarm(struct mesh *mesh)
{
    mesh_set_sleeping(mesh, false);
    if (atomic_load_explicit(&mesh->hub->asleep, memory_order_relaxed))
        mesh_mask(mesh->hub);
}

void mesh_mask(struct mesh *hub)
{
    mask(hub, true);
}

void mesh_sleep(struct mesh *hub, int64_t deadline)
{
    atomic_store_explicit(&hub->asleep, true, memory_order_relaxed);
    if (platform_poller_wait(hub->wake_poller, hub->event, deadline))
        platform_event_clear(hub->event);
    atomic_store_explicit(&hub->asleep, false, memory_order_relaxed);
}

void mesh_wake(struct mesh *hub)
{
    platform_event_set(hub->event);
}

/* ---- suspended meshes --------------------------------------------------------------------------------- */

bool mesh_suspend(struct mesh *mesh)
{
    mesh_set_sleeping(mesh, true);
    mesh->suspended = !mesh->unreported && !mesh->listed && !any_news(mesh);
    if (!mesh->suspended)
        mesh_set_sleeping(mesh, false);
    return mesh->suspended;
}

bool mesh_holds_memory(const struct mesh *mesh)
{
    bool holds = false;
    for (int i = 0; i < mesh->linked_count; i++) {
        const struct peer *peer = mesh->linked[i];
        holds |= peer->transport->holds_memory && peer->transport->holds_memory(peer);
    }
    return holds;
}

bool mesh_return_memory(struct mesh *mesh)
{
    bool done = true;
    for (int i = 0; i < mesh->linked_count; i++) {
        struct peer *peer = mesh->linked[i];
        done &= !peer->transport->return_memory || peer->transport->return_memory(peer);
    }
    return done;
}

void *mesh_next_resumed(struct mesh *hub)
{
    bool signaled = hub->signaled && atomic_load_explicit(hub->signaled, memory_order_relaxed);
    for (int i = 0; signaled && i < hub->used_count; i++)
        if (hub->used[i]->resume_signaled)
            hub->used[i]->resume_signaled(hub);
    struct mesh *mesh = hub->resumed;
    if (!mesh)
        return NULL;
    hub->resumed = mesh->next_resumed;
    mesh->listed = false;
    return mesh->owner;
}

/* ---- cores ------------------------------------------------------------------------------------------- */

static int core_of(const struct peer *peer)
{
    return peer->transport->core ? peer->transport->core(peer) : -1;
}

bool mesh_shares_core(struct mesh *mesh, int core)
{
    bool shares = false;
    for (int i = 0; i < mesh->used_count; i++)
        if (mesh->used[i]->set_core)
            mesh->used[i]->set_core(mesh, core);
    for (int i = 0; !shares && i < mesh->linked_count; i++)
        shares = core_of(mesh->linked[i]) == core;
    return shares;
}

void mesh_leave_core(struct mesh *mesh, int core)
{
    int taken[NEIGHBOURS], count = 0;
    bool yields = false;
    for (int i = 0; i < mesh->linked_count && count < NEIGHBOURS; i++) {
        taken[count++] = core_of(mesh->linked[i]);
        yields |= taken[count - 1] == core && mesh->linked[i]->rank < mesh->rank;
    }
    if (yields)
        platform_thread_leave(taken, count);
}
