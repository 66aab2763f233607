/* shm.c - the transport through shared memory: per peer a segment with a ring each way for every link
 * (shm_link.c), and a Unix socket as doorbell and to notice its death. What a dead peer has written stays
 * readable. The memory passes over that socket at set-up, see sharing.h. One socket, that of the hub's
 * mesh, wakes a process for all its meshes. */
#include "transport/mesh_open.h"
#include "transport/sharing.h"
#include "transport/shm_link.h"

#include "base/platform_sockets.h"
#include "base/status.h"
#include "base/topology.h"
#include "net/crypto.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- set-up ------------------------------------------------------------------------------------------- */

#define NAME_DIGITS 32 /* random */

static_assert(SEGMENT_SIGNAL_WORDS * 64 == MESH_SLOTS, "a bit for each slot");
static_assert(SEGMENT_MARK_WORDS * 64 == MESH_NEWS_BITS, "marks are news");

static struct shm_mesh *state_of(struct mesh *mesh)
{
    return *mesh_state(mesh, &transport_shm);
}

/* The address is the name of a socket, and the system on which it is valid. */
static hvd_code shm_listen(struct mesh *mesh, const struct mesh_config *config, struct listeners *listeners,
                           hvd_status *status)
{
    char *address = listeners->addresses;
    struct shm_mesh *state = calloc(1, sizeof *state);
    if (!state)
        return status_no_memory(status);
    *mesh_state(mesh, &transport_shm) = state;
    if (!path_rule_find(config->settings->shm_path, &state->path_rule))
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "path '%s' is unknown (HOROVOD_SHM_PATH); there are auto, ring, nontemporal and direct",
            config->settings->shm_path);
    state->ring_bytes = (size_t)config->settings->shm_ring_bytes;
    char system[TOPOLOGY_HOST_LIMIT];
    /* This needs a descriptor for a moment, so it is called before the socket needs one. */
    topology_own_system(config->settings->host_id, system, sizeof system);
    TRY(crypto_random_hex(address + sprintf(address, "horovod-"), NAME_DIGITS, status));
    listeners->fds[0] = platform_local_listen(address);
    if (listeners->fds[0] < 0)
        return status_set_errno(status, errno, "can't listen on a Unix socket");
    listeners->count = 1;
    append_text(address, sizeof listeners->addresses, " %s", system);
    return HVD_OK;
}

static bool shm_reachable(const char *mine, const char *theirs)
{
    const char *system = strchr(mine, ' '), *other = strchr(theirs, ' ');
    return system && other && strcmp(system, other) == 0;
}

static int check_user(int fd)
{
    if (fd >= 0 && !platform_peer_is_same_user(fd)) {
        socket_close(&fd);
        errno = EPERM;
    }
    return fd;
}

static int shm_dial(const char *address)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(address, " "), address);
    return check_user(platform_local_connect(name));
}

static int shm_accept(int listener, char who[SOCKET_TEXT])
{
    snprintf(who, SOCKET_TEXT, "a process of this host");
    return check_user(socket_accept(listener));
}

/* Most process sets are idle most of the time, and most pairs of ranks exchange nothing: only neighbours in
 * the first mesh have all their memory from the start. */
static bool has_memory(const struct peer *peer)
{
    return peer->neighbour && peer->mesh->hub == peer->mesh;
}

static hvd_code shm_prepare(struct mesh *mesh, int row, hvd_status *status)
{
    struct shm_mesh *state = state_of(mesh);
    int neighbours = 0;
    if (!state) {
        const struct shm_mesh *hub = state_of(mesh->hub);
        *mesh_state(mesh, &transport_shm) = state = calloc(1, sizeof *state);
        if (!state)
            return status_no_memory(status);
        *state = (struct shm_mesh){.ring_bytes = hub->ring_bytes, .path_rule = hub->path_rule};
    }
    for (int i = 0; i < mesh->peer_count; i++) {
        bool reached = mesh->peers[i].reachable >> row & 1;
        state->peers += reached;
        neighbours += reached && mesh->peers[i].neighbour;
    }
    TRY(segment_create(state->peers, neighbours, mesh->channels, state->ring_bytes, &state->segment, status));
    state->segment->memory->marked = mesh_reports(mesh);
    hvd_code code = HVD_OK;
    for (int i = 0; i < mesh->peer_count; i++) {
        const struct peer *peer = &mesh->peers[i];
        if (!(peer->reachable >> row & 1) || !peer->neighbour)
            continue;
        code = segment_reserve(state->segment, peer_index(peer, row), has_memory(peer), status);
        if (code)
            goto release_segment;
    }
    return HVD_OK;
release_segment:
    segment_release(state->segment);
    state->segment = NULL;
    return code;
}

/* Without memory for the rings it offers nothing. */
static hvd_code shm_negotiate(struct peer *peer, int connection, void **state, hvd_status *status)
{
    if (*state)
        return sharing_advance(*state, connection, status);
    const struct segment *own = state_of(peer->mesh)->segment;
    hvd_status fault;
    if (own && segment_reserve(own, peer->index, has_memory(peer), &fault)) {
        log_warning(peer->mesh->rank, "no shared memory for rank %d: %s", peer->rank, fault.text);
        own = NULL;
    }
    *state = sharing_create(own, peer->index, peer->mesh->channels);
    return *state ? sharing_advance(*state, connection, status) : status_no_memory(status);
}

static short shm_events(const void *state)
{
    return stream_events(&((const struct sharing *)state)->stream);
}

static void shm_discard(void *state)
{
    sharing_free(state);
}

/* Returns the same process in the hub if its connection also serves this mesh: both ends find it, or neither
 * does. So only the hub's neighbours count, whose links are there for as long as the hub is open. */
static struct peer *find_in_hub(const struct peer *peer)
{
    const struct mesh *hub = peer->mesh->hub;
    struct peer *same = hub == peer->mesh ? NULL : mesh_peer(hub, peer->rank);
    return same && same->neighbour && same->transport == peer->transport ? same : NULL;
}

static void open_link(struct shm_peer *shm, int channel, const struct ring *in)
{
    const struct peer *peer = shm->peer;
    const struct segment *own = state_of(peer->mesh)->segment;
    struct shm_link *link = &shm->links[channel];
    *link = (struct shm_link){
        .link = {.operations = &shm_link_operations,
                 .mesh = peer->mesh,
                 .peer = peer->rank,
                 .channel = channel},
        .peer = shm,
        .out = segment_ring(own, peer->index, channel),
        .in = *in,
    };
    if (channel > 0 && !own->reserved && !has_memory(peer))
        link->reserve = reserve_of(&link->out);
    peer->links[channel] = &link->link;
}

/* Opens all links to the peer. */
static hvd_code shm_open(struct peer *peer, int channel, int connection, struct tls *tls, void *state,
                         hvd_status *status)
{
    struct mesh *mesh = peer->mesh;
    struct shm_mesh *own = state_of(mesh);
    struct sharing *sharing = state;
    struct shm_peer *shm = calloc(1, sizeof *shm + (size_t)mesh->channels * sizeof *shm->links);
    (void)channel;
    (void)tls;
    if (!shm) {
        socket_close(&connection);
        return status_no_memory(status);
    }
    *shm = (struct shm_peer){.peer = peer, .hub = shm, .doorbell = connection, .segment = sharing->segment};
    sharing->segment = NULL;
    peer->state = shm;
    peer->hub = find_in_hub(peer);
    if (peer->hub) {
        shm->hub = peer->hub->state;
        socket_close(&shm->doorbell);
    }
    for (int i = 0; i < mesh->channels; i++)
        open_link(shm, i, &sharing->rings[i]);
    shm->lending = (struct lending){.out = shm->links[0].out.memory,
                                    .in = shm->links[0].in.memory,
                                    .own_id = own->segment->memory->id,
                                    .id = shm->segment->memory->id};
    path_begin(&shm->path, own->path_rule);
    /* The descriptor is needed until all have mapped the memory. */
    if (++own->linked == own->peers)
        segment_close_fd(own->segment);
    if (mesh->hub == mesh)
        mesh->signaled = &own->segment->memory->any_signaled;
    return HVD_OK;
}

/* ---- in use ------------------------------------------------------------------------------------------- */

static void shm_poll(struct peer *peer)
{
    struct shm_peer *shm = peer->state;
    char rings[64];
    ssize_t n;
    int fd;
    mesh_resume_for_news(peer->mesh);
    lending_tidy(&shm->lending);
    do {
        n = platform_receive_with_fd(shm->doorbell, rings, sizeof rings, &fd);
        if (n > 0 && memchr(rings, LENDING_OFFER, (size_t)n))
            lending_accept(&shm->lending, fd);
        if (n > 0 && memchr(rings, LENDING_PROBE, (size_t)n))
            lending_probe(&shm->lending, peer->mesh->rank, shm->doorbell);
        socket_close(&fd);
    } while (n == sizeof rings || (n < 0 && errno == EINTR));
    if (n == 0)
        peer_lose(peer, 0);
    else if (n < 0 && errno != EAGAIN)
        peer_lose(peer, errno);
}

static bool shm_attach(struct peer *peer)
{
    const struct shm_peer *shm = peer->state;
    return shm->doorbell < 0 || mesh_watch_peer(peer, shm->doorbell);
}

static void shm_collect_marks(struct mesh *mesh)
{
    _Atomic uint64_t *marks = state_of(mesh)->segment->memory->marks;
    for (int word = 0; word < MESH_NEWS_BITS / 64; word++)
        if (atomic_load(&marks[word]))
            mesh->news[word] |= atomic_exchange(&marks[word], 0);
}

static void shm_arm(struct mesh *mesh, bool armed)
{
    atomic_store(&state_of(mesh)->segment->memory->sleeping, armed);
}

/* A bit may stand for several meshes, or for one that was closed: a mesh without news is suspended again. */
static void shm_resume_signaled(struct mesh *hub)
{
    struct segment_memory *memory = state_of(hub)->segment->memory;
    unsigned words = atomic_exchange(&memory->any_signaled, 0);
    for (unsigned word = 0; word < SEGMENT_SIGNAL_WORDS; word++) {
        uint64_t bits = words >> word & 1 ? atomic_exchange(&memory->signaled[word], 0) : 0;
        for (; bits; bits &= bits - 1) {
            struct mesh *mesh = hub->slots[word * 64 + (unsigned)__builtin_ctzll(bits)];
            for (; mesh; mesh = mesh->next)
                mesh_resume_for_news(mesh);
        }
    }
}

static bool shm_holds_memory(const struct peer *peer)
{
    const struct shm_peer *shm = peer->state;
    bool holds = false;
    for (int channel = 0; channel < peer->mesh->channels; channel++)
        holds |= reserve_is_used(&shm->links[channel].reserve);
    return holds;
}

static bool shm_return_memory(struct peer *peer)
{
    struct shm_peer *shm = peer->state;
    bool done = true;
    for (int channel = 0; channel < peer->mesh->channels; channel++)
        done &= reserve_return(&shm->links[channel].reserve, &shm->links[channel].out);
    return done;
}

static char shm_process_state(const struct peer *peer)
{
    const struct shm_peer *shm = peer->state;
    return platform_peer_state(shm->hub->doorbell);
}

static int shm_core(const struct peer *peer)
{
    const struct shm_peer *shm = peer->state;
    return atomic_load_explicit(&shm->segment->memory->core, memory_order_relaxed) - 1;
}

static void shm_set_core(struct mesh *mesh, int core)
{
    atomic_store_explicit(&state_of(mesh)->segment->memory->core, core + 1, memory_order_relaxed);
}

/* ---- the end ------------------------------------------------------------------------------------------ */

static void shm_close_peer(struct peer *peer)
{
    struct shm_peer *shm = peer->state;
    for (int channel = 0; channel < peer->mesh->channels; channel++)
        shm->hub->lending.readers -= shm->links[channel].borrowed_left > 0;
    socket_close(&shm->doorbell);
    lending_end(&shm->lending);
    segment_release(shm->segment);
    free(shm);
}

static void shm_close_mesh(struct mesh *mesh)
{
    struct shm_mesh *state = state_of(mesh);
    segment_release(state->segment);
    free(state);
}

static void shm_abandon(struct peer *peer)
{
    struct shm_peer *shm = peer->state;
    socket_close(&shm->doorbell);
}

const struct transport transport_shm = {
    .name = "shm",
    .needs = "both ranks on one system",
    .listen = shm_listen,
    .reachable = shm_reachable,
    .dial = shm_dial,
    .accept = shm_accept,
    .prepare = shm_prepare,
    .negotiate = shm_negotiate,
    .events = shm_events,
    .discard = shm_discard,
    .open = shm_open,
    .attach = shm_attach,
    .poll = shm_poll,
    .collect_marks = shm_collect_marks,
    .arm = shm_arm,
    .resume_signaled = shm_resume_signaled,
    .holds_memory = shm_holds_memory,
    .return_memory = shm_return_memory,
    .process_state = shm_process_state,
    .core = shm_core,
    .set_core = shm_set_core,
    .close_peer = shm_close_peer,
    .close_mesh = shm_close_mesh,
    .abandon = shm_abandon,
};
