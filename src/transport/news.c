/* news.c - news of a mesh's links: looking for them without blocking, sleeping until there are some, and the
 * meshes that are suspended until then. See mesh.h. */
#include "base/clock.h"
#include "base/platform.h"
#include "base/status.h"
#include "transport/opening.h"

#include <string.h>

enum { NEIGHBOURS = 256 }; /* on one host, the cores of which are compared */

#define NEWS_PER_CALL 64

/* ---- what peers report -------------------------------------------------------------------------------- */

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

static bool gather_news(struct mesh *mesh)
{
    uint64_t any = 0;
    if (!mesh_reports(mesh))
        return false;
    for (int i = 0; i < mesh->used_count; i++)
        if (mesh->used[i]->take_marks)
            mesh->used[i]->take_marks(mesh);
    for (int word = 0; word < MESH_NEWS_BITS / 64; word++)
        any |= mesh->news[word];
    return any;
}

void mesh_take_news(struct mesh *mesh, uint64_t news[MESH_NEWS_BITS / 64])
{
    gather_news(mesh);
    memcpy(news, mesh->news, sizeof mesh->news);
    memset(mesh->news, 0, sizeof mesh->news);
}

void link_await(struct link *link)
{
    if (link->awaited || !link->mesh)
        return;
    link->awaited = true;
    link->next_awaited = link->mesh->awaited;
    link->mesh->awaited = link;
}

/* ---- what the kernel reports -------------------------------------------------------------------------- */

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

static void turn_connector(void *owner, unsigned what)
{
    struct connector *connector = owner;
    hvd_status fault;
    (void)what;
    if (connector_turn(connector, &fault))
        log_warning(connector->mesh->rank, "%s", fault.text);
}

bool mesh_watch_connector(struct mesh *hub)
{
    struct connector *connector = hub->connector;
    connector->watch = (struct watch){turn_connector, connector};
    hub->watches = true;
    return platform_poller_add(hub->poller, connector->poller, POLLER_READ, &connector->watch);
}

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
    int count = hub->watches ? platform_poller_take(hub->poller, news, NEWS_PER_CALL) : 0;
    for (int i = 0; i < count; i++) {
        const struct watch *watch = news[i].tag;
        watch->ready(watch->owner, news[i].what);
    }
    int64_t deadline = mesh_deadline(hub), now = deadline == CLOCK_NEVER ? 0 : clock_now();
    if (deadline > now)
        return;
    if (hub->next_report <= now)
        hub->next_report = CLOCK_NEVER;
    if (hub->connector && hub->connector->next <= now)
        turn_connector(hub->connector, 0);
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

static void set_sleeping(struct mesh *mesh, bool value)
{
    for (int i = 0; i < mesh->used_count; i++)
        if (mesh->used[i]->arm)
            mesh->used[i]->arm(mesh, value);
}

static void mask(struct mesh *hub, bool value)
{
    if (hub->masked == value || !hub->watches_links)
        return;
    hub->masked = value;
    platform_poller_change(hub->wake_poller, hub->poller, value ? 0 : POLLER_READ, NULL);
}

static bool any_signaled(const struct mesh *hub)
{
    return hub->resumed || (hub->signaled && atomic_load(hub->signaled));
}

bool mesh_arm(struct mesh *mesh)
{
    set_sleeping(mesh, true);
    mask(mesh->hub, false);
    return !mesh_has_lost(mesh) && !any_news(mesh) && !any_signaled(mesh->hub);
}

void mesh_disarm(struct mesh *mesh)
{
    set_sleeping(mesh, false);
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
    set_sleeping(mesh, true);
    mesh->suspended = !mesh->unreported && !mesh->listed && !any_news(mesh);
    if (!mesh->suspended)
        set_sleeping(mesh, false);
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

void mesh_resume(struct mesh *mesh)
{
    if (mesh->suspended)
        set_sleeping(mesh, false);
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

void *mesh_next_resumed(struct mesh *hub)
{
    bool signaled = hub->signaled && atomic_load_explicit(hub->signaled, memory_order_relaxed);
    for (int i = 0; signaled && i < hub->used_count; i++)
        if (hub->used[i]->take_signaled)
            hub->used[i]->take_signaled(hub);
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
