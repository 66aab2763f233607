/* shm.c - links through shared memory: a ring each way, and per peer a Unix socket as doorbell and to notice
 * its death. What a dead peer has written stays readable. The memory passes over that socket at set-up, see
 * sharing.h. A process is rung through one socket, that of the hub's mesh, for all meshes. */
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
#include <sys/socket.h>

/* The other side begins while this one still copies. */
#define PUBLISH_BYTES ((size_t)32 << 10)

/* Less is copied into the ring sooner than it is looked up. */
#define LEND_BYTES ((size_t)8 << 10)

static struct shm_link *shm_of(struct link *link)
{
    return (struct shm_link *)link;
}

/* ---- losses ------------------------------------------------------------------------------------------- */

static void give_up(const struct shm_peer *shm, int error)
{
    hvd_status cause;
    char who[MESH_PEER_TEXT];
    peer_text(shm->peer, who, sizeof who);
    switch (error) {
    case EBADMSG:
        status_set(&cause, HVD_PEER_LOST,
                   "gave up %s: it points to memory that it has not shared; either its memory is corrupt, or "
                   "it runs another version of Horovod",
                   who);
        break;
    case ECANCELED:
        status_set(&cause, HVD_PEER_LOST,
                   "gave up %s: it ended an operation whose data this rank still read; see its output", who);
        break;
    case ENOSPC:
        status_set(&cause, HVD_PEER_LOST,
                   "gave up %s: there is no shared memory for what goes to it (a container's memory limit "
                   "counts it; HOROVOD_SHM_RING_BYTES makes it smaller)",
                   who);
        break;
    default: /* EPERM, EFAULT */
        status_set_errno(&cause, error,
                         "gave up %s: its memory can't be read directly any more (HOROVOD_SHM_PATH=ring does "
                         "without)",
                         who);
        cause.code = HVD_PEER_LOST;
    }
    peer_give_up(shm->peer, &cause);
}

/* ---- the doorbell ------------------------------------------------------------------------------------- */

static void ring_doorbell(const struct shm_peer *shm)
{
    if (shm->peer->lost)
        return;
    ssize_t n;
    do
        n = send(shm->doorbell, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN) /* EAGAIN: many rings are waiting there already */
        peer_lose(shm->peer, errno);
}

static void ring_hub(const struct shm_peer *shm);

static inline void wake_if_sleeping(const struct shm_peer *shm)
{
    atomic_uint *sleeping = &shm->segment->memory->sleeping;
    if (!atomic_load(sleeping) || !atomic_exchange(sleeping, 0))
        return;
    if (shm->hub != shm)
        ring_hub(shm);
    else
        ring_doorbell(shm);
}

/* One doorbell for all meshes: the peer learns from the bit which of them has news. */
static void ring_hub(const struct shm_peer *shm)
{
    struct segment_memory *memory = shm->hub->segment->memory;
    unsigned bit = shm->peer->mesh->number % MESH_SLOTS;
    atomic_fetch_or(&memory->rung[bit / 64], (uint64_t)1 << bit % 64);
    atomic_fetch_or(&memory->any_rung, 1U << bit / 64);
    wake_if_sleeping(shm->hub);
}

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

/* ---- link_operations ---------------------------------------------------------------------------------- */

/* Shows the peer the first of these bytes where they lie, if it can and should read them there: how many. */
static size_t lend(struct shm_link *shm, const struct iovec *part)
{
    struct ring_reference reference;
    struct shm_peer *peer = shm->peer, *owner = peer->hub;
    size_t batch_bytes = shm->link.batch_bytes;
    if (!shm->link.lends)
        return 0;
    if (part->iov_len < LEND_BYTES || !path_shares(&peer->path, batch_bytes) ||
        !lending_refer(&owner->lending, owner->doorbell, part, &reference)) {
        size_t n = path_direct_bytes(&peer->path, batch_bytes, &shm->out.memory->costs, part->iov_len);
        if (!n || !lending_is_readable(&owner->lending, owner->doorbell, part->iov_base, n))
            return 0;
        reference = (struct ring_reference){0, (uintptr_t)part->iov_base, n};
    }
    if (!ring_refer(&shm->out, &reference))
        return 0;
    shm->link.lent = shm->out.mine;
    return reference.length;
}

/* -1: no memory for the ring. */
static ssize_t copy_piece(struct shm_link *shm, const struct iovec *part)
{
    size_t length = part->iov_len < PUBLISH_BYTES ? part->iov_len : PUBLISH_BYTES;
    if (shm->reserve.missing && !reserve_next(&shm->reserve, &shm->out, length)) {
        give_up(shm->peer, ENOSPC);
        return -1;
    }
    shm->out.stores = &shm->peer->path.sizes[path_size(shm->link.batch_bytes)].stores;
    return (ssize_t)ring_write(&shm->out, part->iov_base, length);
}

static ssize_t shm_send(struct link *link, const struct iovec *parts, int count)
{
    struct shm_link *shm = shm_of(link);
    size_t total = 0;
    if (shm->peer->peer->lost)
        return -1;
    for (int i = 0; i < count; i++) {
        struct iovec part = parts[i];
        while (part.iov_len) {
            ssize_t n = (ssize_t)lend(shm, &part);
            if (!n)
                n = copy_piece(shm, &part);
            if (n <= 0)
                return n < 0 ? -1 : (ssize_t)total;
            wake_if_sleeping(shm->peer);
            part.iov_base = (char *)part.iov_base + n;
            part.iov_len -= (size_t)n;
            total += (size_t)n;
        }
    }
    return (ssize_t)total;
}

static void shm_end_send(struct link *link)
{
    ring_end_write(&shm_of(link)->out);
}

/* Its owner may have freed what it took back. */
static void lose_lender(struct shm_link *shm, int error)
{
    if (atomic_load(&shm->in.memory->revoked))
        give_up(shm->peer, ECANCELED);
    else if (error == EBADMSG || error == EPERM || error == EFAULT)
        give_up(shm->peer, error);
    else
        peer_lose(shm->peer->peer, error == ESRCH ? 0 : error);
}

/* The next bytes lie in the peer's memory: finds them. */
static bool borrow(struct shm_link *shm, const struct ring_reference *reference)
{
    struct lending *lending = &shm->peer->hub->lending;
    bool direct = reference->arena == 0 && lending->scratch;
    shm->borrowed = direct ? NULL : lending_resolve(lending, reference);
    shm->address = reference->offset;
    shm->borrowed_left = direct || shm->borrowed ? (size_t)reference->length : 0;
    lending->readers += shm->borrowed_left > 0;
    if (!shm->borrowed_left)
        lose_lender(shm, EBADMSG);
    return shm->borrowed_left;
}

/* False: the link is broken. */
static bool find_next(struct shm_link *shm)
{
    struct ring_reference reference;
    return shm->borrowed_left || !ring_follow(&shm->in, &reference) || borrow(shm, &reference);
}

static bool reads_directly(const struct shm_link *shm)
{
    return shm->borrowed_left && !shm->borrowed;
}

static ssize_t read_directly(struct shm_link *shm, void *to, size_t length)
{
    size_t wanted = length < shm->borrowed_left ? length : shm->borrowed_left;
    if (shm->peer->peer->lost) /* its id may be another process's by now */
        return -1;
    uint64_t begin = path_ticks();
    ssize_t n = lending_read(&shm->peer->hub->lending, to, shm->address, wanted);
    if (n != (ssize_t)wanted) {
        lose_lender(shm, n < 0 ? errno : EFAULT);
        return -1;
    }
    path_learn(&shm->in.memory->costs.direct[path_size(shm->link.batch_bytes)], path_ticks() - begin, wanted);
    return n;
}

/* Nothing more can come once the peer is lost and its ring is empty. */
static ssize_t shm_view(struct link *link, const void **data, size_t limit)
{
    struct shm_link *shm = shm_of(link);
    bool lost = shm->peer->peer->lost;
    link->storing = NULL;
    if (!find_next(shm))
        return -1;
    if (reads_directly(shm)) {
        uint8_t *scratch = shm->peer->hub->lending.scratch;
        *data = scratch;
        return read_directly(shm, scratch, limit < LENDING_SCRATCH ? limit : LENDING_SCRATCH);
    }
    if (shm->borrowed_left) {
        *data = shm->borrowed;
        link->storing = &shm->peer->reduced;
        return (ssize_t)(limit < shm->borrowed_left ? limit : shm->borrowed_left);
    }
    size_t n = ring_view(&shm->in, data, limit);
    shm->unusable = n < 16 && n < limit ? n : 0;
    return n || !lost ? (ssize_t)n : -1;
}

static bool shm_consume(struct link *link, size_t n)
{
    struct shm_link *shm = shm_of(link);
    bool borrowed = shm->borrowed_left > 0;
    if (!n)
        return true;
    shm->unusable = 0;
    if (borrowed) {
        shm->borrowed = shm->borrowed ? shm->borrowed + n : NULL;
        shm->address += n;
        shm->borrowed_left -= n;
        shm->peer->hub->lending.readers -= !shm->borrowed_left;
    }
    ring_consume(&shm->in, n);
    if (borrowed && atomic_load(&shm->in.memory->revoked)) { /* after all that was read */
        give_up(shm->peer, ECANCELED);
        return false;
    }
    if (atomic_load(&shm->in.memory->wants_room) && atomic_exchange(&shm->in.memory->wants_room, 0))
        wake_if_sleeping(shm->peer);
    return true;
}

/* The next bytes that lie in one piece, at most `length`. */
static ssize_t receive_piece(struct shm_link *shm, char *to, size_t length)
{
    const void *from;
    if (!find_next(shm))
        return -1;
    if (reads_directly(shm))
        return read_directly(shm, to, length);
    ssize_t n = shm_view(&shm->link, &from, length < PUBLISH_BYTES ? length : PUBLISH_BYTES);
    if (n <= 0)
        return n;
    if (shm->borrowed_left) {
        stores_copy(&shm->peer->received, to, from, (size_t)n);
        return n;
    }
    path_copy(&shm->in.memory->costs.ring[path_size(shm->link.batch_bytes)], to, from, (size_t)n);
    return n;
}

static ssize_t receive_part(struct link *link, char *to, size_t length)
{
    size_t done = 0;
    while (done < length) {
        ssize_t n = receive_piece(shm_of(link), to + done, length - done);
        if (n <= 0)
            return done ? (ssize_t)done : n;
        if (!shm_consume(link, (size_t)n))
            return -1;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

static ssize_t shm_receive(struct link *link, const struct iovec *parts, int count)
{
    ssize_t total = 0;
    for (int i = 0; i < count; i++) {
        ssize_t n = receive_part(link, parts[i].iov_base, parts[i].iov_len);
        if (n < 0)
            return total ? total : -1;
        total += n;
        if ((size_t)n < parts[i].iov_len)
            break;
    }
    return total;
}

static void shm_end_receive(struct link *link)
{
    struct shm_link *shm = shm_of(link);
    shm->unusable = 0;
    ring_end_read(&shm->in);
}

static bool shm_taken(struct link *link, uint64_t lent)
{
    struct ring *out = &shm_of(link)->out;
    ring_room(out);
    return (int64_t)(out->theirs - lent) >= 0;
}

static void shm_revoke(struct link *link)
{
    atomic_store(&shm_of(link)->out.memory->revoked, true);
}

static bool shm_news(struct link *link)
{
    struct shm_link *shm = shm_of(link);
    if (link->want_read && ring_available(&shm->in) > shm->unusable)
        return true;
    if ((!link->want_write && !link->want_taken) || shm->peer->peer->lost)
        return false;
    atomic_store(&shm->out.memory->wants_room, 1);
    return (link->want_write && ring_room(&shm->out) >= RING_GRAIN) ||
           (link->want_taken && shm_taken(link, link->want_taken));
}

static const struct link_operations operations = {
    .send = shm_send,
    .end_send = shm_end_send,
    .receive = shm_receive,
    .view = shm_view,
    .consume = shm_consume,
    .end_receive = shm_end_receive,
    .taken = shm_taken,
    .revoke = shm_revoke,
    .news = shm_news,
};

/* ---- set-up ------------------------------------------------------------------------------------------- */

#define NAME_DIGITS 32 /* random */

static_assert(SEGMENT_RUNG_WORDS * 64 == MESH_SLOTS, "a bit for each slot");

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

/* Most process sets of a job are idle most of the time: only the first mesh has its memory from the start. */
static hvd_code shm_prepare(struct mesh *mesh, int peers, hvd_status *status)
{
    struct shm_mesh *state = state_of(mesh);
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
        .link = {.operations = &operations, .peer = peer->rank, .channel = channel},
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
        mesh->rung = &own->segment->memory->any_rung;
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
static void shm_take_rung(struct mesh *hub)
{
    struct segment_memory *memory = state_of(hub)->segment->memory;
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
    .take_rung = shm_take_rung,
    .holds_memory = shm_holds_memory,
    .return_memory = shm_return_memory,
    .process_state = shm_process_state,
    .core = shm_core,
    .set_core = shm_set_core,
    .close_peer = shm_close_peer,
    .close_mesh = shm_close_mesh,
    .abandon = shm_abandon,
};
