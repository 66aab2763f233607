/* shm.c - the transport through shared memory: per peer a segment with a ring each way for every link
 * (shm_link.c), and a Unix socket as doorbell and to notice its death. What a dead peer has written stays
 * readable. The memory passes over that socket at set-up, see sharing.h. One socket, that of the hub's mesh,
 * wakes a process for all its meshes. */
#include "transport/shm.h"

#include "base/crypto.h"
#include "base/platform.h"
#include "base/status.h"
#include "base/topology.h"
#include "transport/sharing.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- set-up ------------------------------------------------------------------------------------------- */

#define NAME_DIGITS 32 /* random */

static_assert(SEGMENT_SIGNAL_WORDS * 64 == MESH_SLOTS, "a bit for each slot");

static struct shm_mesh *state_of(struct mesh *mesh)
{
    return *mesh_state(mesh, &transport_shm);
}

/* The address: a socket's name, and the host in which it means something. */
static hvd_code shm_listen(struct mesh *mesh, const struct mesh_config *config, int *listener,
                           char address[TRANSPORT_ADDRESS], hvd_status *status)
{
    struct shm_mesh *state = calloc(1, sizeof *state);
    if (!state)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    *mesh_state(mesh, &transport_shm) = state;
    if (!path_rule_find(config->settings->shm_path, &state->path_rule))
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "path '%s' is unknown (HOROVOD_SHM_PATH); there are auto, ring, nontemporal and direct",
            config->settings->shm_path);
    state->ring_bytes = (size_t)config->settings->shm_ring_bytes;
    char host[TOPOLOGY_HOST_LIMIT];
    /* It needs a descriptor for a moment, so it comes first. */
    topology_own_host(config->settings->host_id, host, sizeof host);
    hvd_code code = crypto_random_hex(address + sprintf(address, "horovod-"), NAME_DIGITS, status);
    if (code)
        return code;
    *listener = platform_local_listen(address);
    if (*listener < 0)
        return status_set_errno(status, errno, "can't listen on a Unix socket");
    append_text(address, TRANSPORT_ADDRESS, " %s", host);
    return HVD_OK;
}

static bool shm_reachable(const char *mine, const char *theirs)
{
    const char *host = strchr(mine, ' '), *other = strchr(theirs, ' ');
    return host && other && strcmp(host, other) == 0;
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
    char name[TRANSPORT_ADDRESS];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(address, " "), address);
    return check_user(platform_local_connect(name));
}

static int shm_accept(int listener, char who[SOCKET_TEXT])
{
    snprintf(who, SOCKET_TEXT, "a process of this host");
    return check_user(socket_accept(listener));
}

/* A process set shares the settings of the hub. Most of them are idle most of the time: only the first mesh
 * has its memory from the start. */
static hvd_code shm_prepare(struct mesh *mesh, int peers, hvd_status *status)
{
    struct shm_mesh *state = state_of(mesh);
    if (!state && (state = calloc(1, sizeof *state))) {
        state->ring_bytes = state_of(mesh->hub)->ring_bytes;
        state->path_rule = state_of(mesh->hub)->path_rule;
        *mesh_state(mesh, &transport_shm) = state;
    }
    if (!state)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    return segment_create(peers, mesh->channels, state->ring_bytes, mesh->hub == mesh, &state->segment,
                          status);
}

static hvd_code shm_negotiate(struct peer *peer, int connection, void **state, hvd_status *status)
{
    struct mesh *mesh = peer->mesh;
    if (!*state && !(*state = calloc(1, sizeof(struct sharing))))
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    struct sharing *sharing = *state;
    hvd_code code = HVD_OK;
    if (!sharing->out)
        code = sharing_begin(sharing, state_of(mesh)->segment, peer->index, mesh->channels, status);
    return code ? code : sharing_advance(sharing, connection, status);
}

static short shm_events(const void *state)
{
    return sharing_events(state);
}

static void shm_discard(void *state)
{
    sharing_free(state);
    free(state);
}

/* The same process in the hub, if its connection serves this mesh, too: both ends find it, or neither. */
static struct peer *find_in_hub(const struct peer *peer)
{
    const struct mesh *hub = peer->mesh->hub;
    struct peer *same = hub == peer->mesh ? NULL : mesh_peer(hub, peer->rank);
    return same && same->transport == peer->transport ? same : NULL;
}

static void open_link(struct shm_peer *shm, int channel, const struct ring *in)
{
    const struct peer *peer = shm->peer;
    const struct segment *own = state_of(peer->mesh)->segment;
    struct shm_link *link = &shm->links[channel];
    *link = (struct shm_link){
        .link = {.operations = &shm_link_operations, .peer = peer->rank, .channel = channel},
        .peer = shm,
        .out = segment_ring(own, peer->index, channel),
        .in = *in,
    };
    if (channel > 0 && !own->reserved)
        link->reserve = reserve_of(&link->out);
    peer->links[channel] = &link->link;
}

/* All links. */
static hvd_code shm_open(struct peer *peer, int channel, int connection, void *state, hvd_status *status)
{
    struct mesh *mesh = peer->mesh;
    struct shm_mesh *own = state_of(mesh);
    struct sharing *sharing = state;
    struct shm_peer *shm = calloc(1, sizeof *shm + (size_t)mesh->channels * sizeof *shm->links);
    (void)channel;
    if (!shm) {
        socket_close(&connection);
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
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
    own->peers++;
    if (mesh->hub == mesh)
        mesh->signaled = &own->segment->memory->any_signaled;
    return HVD_OK;
}

static void shm_opened(struct mesh *mesh)
{
    struct shm_mesh *state = state_of(mesh);
    if (!state->segment)
        return;
    segment_close_fd(state->segment);
    if (!state->peers)
        segment_release(state->segment);
    state->segment = state->peers ? state->segment : NULL;
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

static void shm_arm(struct mesh *mesh, bool armed)
{
    atomic_store(&state_of(mesh)->segment->memory->sleeping, armed);
}

/* A bit may stand for several meshes, or for one that was closed: what has no news is suspended again. */
static void shm_take_signaled(struct mesh *hub)
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
    .needs = "both ranks on one host",
    .listen = shm_listen,
    .reachable = shm_reachable,
    .dial = shm_dial,
    .accept = shm_accept,
    .prepare = shm_prepare,
    .negotiate = shm_negotiate,
    .events = shm_events,
    .discard = shm_discard,
    .open = shm_open,
    .opened = shm_opened,
    .attach = shm_attach,
    .poll = shm_poll,
    .arm = shm_arm,
    .take_signaled = shm_take_signaled,
    .holds_memory = shm_holds_memory,
    .return_memory = shm_return_memory,
    .process_state = shm_process_state,
    .core = shm_core,
    .set_core = shm_set_core,
    .close_peer = shm_close_peer,
    .close_mesh = shm_close_mesh,
    .abandon = shm_abandon,
};
