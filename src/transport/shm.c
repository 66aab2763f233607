/* shm.c - links through shared memory: a ring each way, and per peer a Unix socket as doorbell and to notice
 * its death. What a dead peer has written stays readable. */
#include "base/platform.h"
#include "base/socket.h"
#include "base/status.h"
#include "transport/peer.h"
#include "transport/reserve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* The other side begins while this one still copies. */
#define PUBLISH_BYTES ((size_t)32 << 10)

/* Less is copied into the ring sooner than it is looked up. */
#define LEND_BYTES ((size_t)8 << 10)

struct shm_link {
    struct link link;
    struct peer *peer;
    struct ring out, in;
    const uint8_t *borrowed; /* the next bytes, in the peer's memory; NULL: it is not mapped here */
    uint64_t address;        /* then they lie there */
    size_t borrowed_left;    /* 0: they lie in the ring */
    size_t unusable;         /* bytes that the last view showed and that were too few to use */
    struct reserve reserve;  /* of `out` */
};

static struct shm_link *shm_of(struct link *link)
{
    return (struct shm_link *)link;
}

/* ---- the doorbell ------------------------------------------------------------------------------------- */

static void ring_doorbell(struct peer *peer)
{
    if (peer->lost)
        return;
    ssize_t n;
    do
        n = send(peer->doorbell, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN) /* EAGAIN: many rings are waiting there already */
        peer_lose(peer, errno);
}

static void ring_hub(const struct peer *peer);

static inline void wake_if_sleeping(struct peer *peer)
{
    atomic_uint *sleeping = &peer->segment->memory->sleeping;
    if (!atomic_load(sleeping) || !atomic_exchange(sleeping, 0))
        return;
    if (peer->hub)
        ring_hub(peer);
    else
        ring_doorbell(peer);
}

/* One doorbell for all meshes: the peer learns from the bit which of them has news. */
static void ring_hub(const struct peer *peer)
{
    struct segment_memory *memory = peer->hub->segment->memory;
    unsigned bit = peer->mesh->number % MESH_SLOTS;
    atomic_fetch_or(&memory->rung[bit / 64], (uint64_t)1 << bit % 64);
    atomic_fetch_or(&memory->any_rung, 1U << bit / 64);
    wake_if_sleeping(peer->hub);
}

static struct lending *lending_of(struct peer *peer)
{
    return peer->hub ? &peer->hub->lending : &peer->lending;
}

void shm_poll(struct peer *peer)
{
    char rings[64];
    ssize_t n;
    int fd;
    mesh_resume_for_news(peer->mesh);
    lending_tidy(&peer->lending);
    do {
        n = platform_receive_with_fd(peer->doorbell, rings, sizeof rings, &fd);
        if (n > 0 && memchr(rings, LENDING_OFFER, (size_t)n))
            lending_accept(&peer->lending, fd);
        if (n > 0 && memchr(rings, LENDING_PROBE, (size_t)n))
            lending_probe(&peer->lending, peer->mesh->rank, peer->doorbell);
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
    struct peer *peer = shm->peer, *owner = peer->hub ? peer->hub : peer;
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
        peer_lose(shm->peer, ENOSPC);
        return -1;
    }
    shm->out.stores = &shm->peer->path.sizes[path_size(shm->link.batch_bytes)].stores;
    return (ssize_t)ring_write(&shm->out, part->iov_base, length);
}

static ssize_t shm_send(struct link *link, const struct iovec *parts, int count)
{
    struct shm_link *shm = shm_of(link);
    size_t total = 0;
    if (shm->peer->lost)
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
    char who[MESH_PEER_TEXT];
    struct peer *peer = shm->peer;
    if (atomic_load(&shm->in.memory->revoked))
        error = ECANCELED;
    bool denied = !peer->lost && (error == EPERM || error == EFAULT);
    peer_lose(peer, error == ESRCH ? 0 : error);
    if (denied) {
        status_set_errno(&peer->cause, error,
                         "gave up %s: its memory can't be read directly any more (HOROVOD_SHM_PATH=ring does "
                         "without)",
                         peer_text(peer, who, sizeof who));
        peer->cause.code = HVD_PEER_LOST;
    }
}

/* The next bytes lie in the peer's memory: finds them. */
static bool borrow(struct shm_link *shm, const struct ring_reference *reference)
{
    struct lending *lending = lending_of(shm->peer);
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
    if (shm->peer->lost) /* its id may be another process's by now */
        return -1;
    uint64_t begin = path_ticks();
    ssize_t n = lending_read(lending_of(shm->peer), to, shm->address, wanted);
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
    bool lost = shm->peer->lost;
    link->storing = NULL;
    if (!find_next(shm))
        return -1;
    if (reads_directly(shm)) {
        uint8_t *scratch = lending_of(shm->peer)->scratch;
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
        lending_of(shm->peer)->readers -= !shm->borrowed_left;
    }
    ring_consume(&shm->in, n);
    if (borrowed && atomic_load(&shm->in.memory->revoked)) { /* after all that was read */
        peer_lose(shm->peer, ECANCELED);
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
    if ((!link->want_write && !link->want_taken) || shm->peer->lost)
        return false;
    atomic_store(&shm->out.memory->wants_room, 1);
    return (link->want_write && ring_room(&shm->out) >= RING_GRAIN) ||
           (link->want_taken && shm_taken(link, link->want_taken));
}

static void shm_close(struct link *link)
{
    const struct shm_link *shm = shm_of(link);
    lending_of(shm->peer)->readers -= shm->borrowed_left > 0;
    free(link);
}

static void shm_abandon(struct link *link)
{
    (void)link; /* the doorbell is the peer's */
}

const struct link_operations transport_shm = {
    .send = shm_send,
    .end_send = shm_end_send,
    .receive = shm_receive,
    .view = shm_view,
    .consume = shm_consume,
    .end_receive = shm_end_receive,
    .taken = shm_taken,
    .revoke = shm_revoke,
    .news = shm_news,
    .close = shm_close,
    .abandon = shm_abandon,
};

bool shm_holds_memory(const struct peer *peer)
{
    bool holds = false;
    for (int channel = 0; channel < peer->mesh->channels; channel++)
        holds |= reserve_is_used(&shm_of(peer->links[channel])->reserve);
    return holds;
}

bool shm_return_memory(const struct peer *peer)
{
    bool done = true;
    for (int channel = 0; channel < peer->mesh->channels; channel++) {
        struct shm_link *shm = shm_of(peer->links[channel]);
        done &= reserve_return(&shm->reserve, &shm->out);
    }
    return done;
}

hvd_code shm_open_links(struct peer *peer, const struct ring *rings, hvd_status *status)
{
    struct mesh *mesh = peer->mesh;
    for (int channel = 0; channel < mesh->channels; channel++) {
        struct shm_link *shm = calloc(1, sizeof *shm);
        if (!shm)
            return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
        shm->link = (struct link){.operations = &transport_shm, .peer = peer->rank, .channel = channel};
        shm->peer = peer;
        shm->out = segment_ring(mesh->segment, peer->local_index, channel);
        shm->in = rings[channel];
        if (channel > 0 && !mesh->segment->reserved)
            shm->reserve = reserve_of(&shm->out);
        peer->links[channel] = &shm->link;
    }
    struct shm_link *first = shm_of(peer->links[0]);
    peer->lending.out = first->out.memory;
    peer->lending.in = first->in.memory;
    peer->lending.own_id = mesh->segment->memory->id;
    peer->lending.id = peer->segment->memory->id;
    path_begin(&peer->path, mesh->path_rule);
    peer->transport = TRANSPORT_shm;
    mesh->has[TRANSPORT_shm] = true;
    return HVD_OK;
}
