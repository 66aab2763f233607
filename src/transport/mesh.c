/* mesh.c - the mesh in use: links, sleeping, losses. How it comes about is in opening.c. */
#include "base/clock.h"
#include "base/platform.h"
#include "base/socket.h"
#include "base/status.h"
#include "transport/opening.h"
#include "transport/record.h"

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
        struct peer *shared = config->hub ? mesh_peer(config->hub, peer->rank) : NULL;
        peer->hub = shared && shared->doorbell >= 0 ? shared : NULL;
        mesh->peer_count++;
        peer->links = calloc((size_t)mesh->channels, sizeof *peer->links);
        if (!peer->links)
            return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    }
    return HVD_OK;
}

/* What serves the other meshes, too. */
static hvd_code make_hub(struct mesh *mesh, hvd_status *status)
{
    mesh->slots = calloc(MESH_SLOTS, sizeof *mesh->slots);
    if (!mesh->slots)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
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
    opened->hub = config->hub ? config->hub : opened;
    opened->number = config->number;
    opened->owner = config->owner;
    opened->rank = (int)config->settings->rank;
    opened->channels = config->channels;
    opened->event = opened->bell = opened->sockets = -1;
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

/* Channel 0 ends first: by it the peer sees that this was meant. */
static void close_peer(struct peer *peer)
{
    for (int channel = 0; peer->links && channel < peer->mesh->channels; channel++) {
        if (peer->links[channel])
            peer->links[channel]->operations->close(peer->links[channel]);
    }
    free(peer->links);
    if (peer->doorbell >= 0)
        platform_poller_remove(peer->mesh->hub->bell, peer->doorbell);
    socket_close(&peer->doorbell);
    lending_end(&peer->lending);
    segment_release(peer->segment);
}

static struct mesh **slot_of(const struct mesh *hub, unsigned number)
{
    return &hub->slots[number % MESH_SLOTS];
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
    if (mesh->attached)
        detach(mesh);
    for (int i = 0; i < mesh->peer_count; i++)
        close_peer(&mesh->peers[i]);
    segment_release(mesh->segment);
    free(mesh->slots);
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

static void lose(struct peer *peer, const hvd_status *cause)
{
    if (peer->lost)
        return;
    peer->lost = true;
    peer->mesh->untold += !peer->expected;
    status_copy(&peer->cause, cause);
    if (peer->doorbell >= 0) /* its end would keep the sleeper awake */
        platform_poller_remove(peer->mesh->hub->bell, peer->doorbell);
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

static void describe_loss(const struct peer *peer, int error, hvd_status *cause)
{
    char who[MESH_PEER_TEXT];
    peer_text(peer, who, sizeof who);
    if (error == EBADMSG) {
        status_set(cause, HVD_PEER_LOST,
                   "gave up %s: it points to memory that it has not shared; either its memory is corrupt, or "
                   "it runs another version of Horovod",
                   who);
    } else if (error == ECANCELED) {
        status_set(cause, HVD_PEER_LOST,
                   "gave up %s: it ended an operation whose data this rank still read; see its output", who);
    } else if (error == ENOSPC) {
        status_set(cause, HVD_PEER_LOST,
                   "gave up %s: there is no shared memory for what goes to it (a container's memory limit "
                   "counts it; HOROVOD_SHM_RING_BYTES makes it smaller)",
                   who);
    } else if (error == 0 || error == ECONNRESET || error == EPIPE) {
        status_set(cause, HVD_PEER_LOST,
                   "lost %s: its connection was closed without the shutdown handshake; it was probably "
                   "killed or crashed, see "
                   "its output",
                   who);
    } else {
        status_set_errno(cause, error, "lost %s: the connection failed", who);
        cause->code = HVD_PEER_LOST;
    }
}

void peer_lose(struct peer *peer, int error)
{
    hvd_status cause;
    if (peer->lost)
        return;
    describe_loss(peer, error, &cause);
    lose(peer, &cause);
    if (peer->mesh->slots)
        lose_in_all(peer);
}

char mesh_peer_state(const struct mesh *mesh, int peer, char *who, size_t capacity)
{
    const struct peer *found = mesh_peer(mesh, peer);
    peer_text(found, who, capacity);
    int doorbell = found->hub ? found->hub->doorbell : found->doorbell;
    return doorbell < 0 ? '\0' : platform_peer_state(doorbell);
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

static bool listen_to(struct peer *peer)
{
    bool done = true;
    if (peer->hub)
        return true;
    if (peer->doorbell >= 0)
        return platform_poller_add(peer->mesh->hub->bell, peer->doorbell, POLLER_READ, peer);
    for (int channel = 0; done && channel < peer->mesh->channels; channel++)
        done = tcp_listen(peer->links[channel]);
    return done;
}

hvd_code mesh_attach(struct mesh *mesh, hvd_status *status)
{
    struct mesh *hub = mesh->hub;
    struct mesh **slot = slot_of(hub, mesh->number);
    mesh->next = *slot;
    *slot = mesh;
    mesh->attached = true;
    for (int i = 0; i < TRANSPORT_COUNT; i++)
        hub->has[i] |= mesh->has[i];
    for (int i = 0; i < mesh->peer_count; i++) {
        struct peer *peer = &mesh->peers[i];
        if (!listen_to(peer))
            return status_set_errno(status, errno, "rank %d can't wait for news of rank %d", mesh->rank,
                                    peer->rank);
        if (peer->hub && peer->hub->lost)
            lose(peer, &peer->hub->cause);
    }
    return HVD_OK;
}

bool mesh_watch(struct mesh *mesh, int descriptor)
{
    return platform_poller_add(mesh->hub->bell, descriptor, POLLER_READ, NULL);
}

void mesh_unwatch(struct mesh *mesh, int descriptor)
{
    platform_poller_remove(mesh->hub->bell, descriptor);
}

void *mesh_find(const struct mesh *hub, unsigned number)
{
    const struct mesh *mesh = *slot_of(hub, number);
    while (mesh && mesh->number != number)
        mesh = mesh->next;
    return mesh ? mesh->owner : NULL;
}

void mesh_poll(struct mesh *hub)
{
    struct poller_news news[NEWS_PER_CALL];
    if (hub->has[TRANSPORT_tcp])
        tcp_poll(hub);
    if (!hub->has[TRANSPORT_shm])
        return;
    int count = platform_poller_take(hub->bell, news, NEWS_PER_CALL);
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

static void set_sleeping(struct mesh *mesh, unsigned value)
{
    if (mesh->segment)
        atomic_store(&mesh->segment->memory->sleeping, value);
    if (mesh == mesh->hub && mesh->has[TRANSPORT_tcp])
        platform_poller_change(mesh->bell, mesh->sockets, value ? POLLER_READ : 0, NULL);
}

static bool any_rung(const struct mesh *hub)
{
    return hub->resumed || (hub->segment && atomic_load(&hub->segment->memory->any_rung));
}

bool mesh_arm(struct mesh *mesh)
{
    set_sleeping(mesh, 1);
    return !mesh->untold && !any_news(mesh) && !any_rung(mesh->hub);
}

void mesh_disarm(struct mesh *mesh)
{
    set_sleeping(mesh, 0);
}

void mesh_sleep(struct mesh *hub, int64_t deadline)
{
    platform_poller_wait(hub->bell, deadline);
    platform_event_clear(hub->event);
}

void mesh_wake(struct mesh *hub)
{
    platform_event_set(hub->event);
}

/* ---- suspended meshes --------------------------------------------------------------------------------- */

bool mesh_suspend(struct mesh *mesh)
{
    set_sleeping(mesh, 1);
    mesh->suspended = !mesh->untold && !mesh->listed && !any_news(mesh);
    if (!mesh->suspended)
        set_sleeping(mesh, 0);
    return mesh->suspended;
}

bool mesh_holds_memory(const struct mesh *mesh)
{
    bool holds = false;
    for (int i = 0; i < mesh->peer_count; i++)
        holds |= mesh->peers[i].transport == TRANSPORT_shm && shm_holds_memory(&mesh->peers[i]);
    return holds;
}

bool mesh_return_memory(struct mesh *mesh)
{
    bool done = true;
    for (int i = 0; i < mesh->peer_count; i++)
        done &= mesh->peers[i].transport != TRANSPORT_shm || shm_return_memory(&mesh->peers[i]);
    return done;
}

void mesh_resume(struct mesh *mesh)
{
    if (mesh->suspended)
        set_sleeping(mesh, 0);
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

/* A bit may stand for several meshes, or for one that was closed: what has no news is suspended again. */
static void take_rung(const struct mesh *hub)
{
    struct segment_memory *memory = hub->segment->memory;
    unsigned words = atomic_exchange(&memory->any_rung, 0);
    for (unsigned word = 0; word < SEGMENT_RUNG_WORDS; word++) {
        uint64_t bits = words >> word & 1 ? atomic_exchange(&memory->rung[word], 0) : 0;
        for (; bits; bits &= bits - 1) {
            struct mesh *mesh = hub->slots[word * 64 + (unsigned)__builtin_ctzll(bits)];
            for (; mesh; mesh = mesh->next)
                mesh_resume_for_news(mesh);
        }
    }
}

void *mesh_next_resumed(struct mesh *hub)
{
    if (hub->segment && atomic_load_explicit(&hub->segment->memory->any_rung, memory_order_relaxed))
        take_rung(hub);
    struct mesh *mesh = hub->resumed;
    if (!mesh)
        return NULL;
    hub->resumed = mesh->next_resumed;
    mesh->listed = false;
    return mesh->owner;
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
