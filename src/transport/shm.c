/* shm.c - links through shared memory: a ring each way, and per peer a Unix socket as doorbell and to notice
 * its death. What a dead peer has written stays readable. */
#include "base/platform.h"
#include "base/socket.h"
#include "base/status.h"
#include "transport/peer.h"

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
    const uint8_t *borrowed; /* the next bytes, in the peer's memory */
    size_t borrowed_left;    /* 0: they lie in the ring */
    size_t unusable;         /* bytes that the last view showed and that were too few to use */
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

static inline void wake_if_sleeping(struct peer *peer)
{
    atomic_uint *sleeping = &peer->segment->memory->sleeping;
    if (atomic_load(sleeping) && atomic_exchange(sleeping, 0))
        ring_doorbell(peer);
}

/* Whether bytes of the peer's memory are still to be read. */
static bool borrows(const struct peer *peer)
{
    for (int channel = 0; channel < peer->mesh->channels; channel++) {
        if (shm_of(peer->links[channel])->borrowed_left)
            return true;
    }
    return false;
}

void shm_poll(struct peer *peer)
{
    char rings[64];
    ssize_t n;
    int fd;
    lending_tidy(&peer->lending, borrows(peer));
    do {
        n = platform_receive_with_fd(peer->doorbell, rings, sizeof rings, &fd);
        if (n > 0 && memchr(rings, LENDING_OFFER, (size_t)n))
            lending_accept(&peer->lending, fd);
        socket_close(&fd);
    } while (n == sizeof rings || (n < 0 && errno == EINTR));
    if (n == 0)
        peer_lose(peer, 0);
    else if (n < 0 && errno != EAGAIN)
        peer_lose(peer, errno);
}

/* ---- link_operations ---------------------------------------------------------------------------------- */

/* Shows the peer the bytes where they lie, if it can see them there. */
static bool lend(struct shm_link *shm, const struct iovec *part)
{
    struct ring_reference reference;
    if (!shm->link.lends || part->iov_len < LEND_BYTES)
        return false;
    if (!lending_refer(&shm->peer->lending, shm->peer->doorbell, part, &reference) ||
        !ring_refer(&shm->out, &reference))
        return false;
    shm->link.lent = shm->out.mine;
    wake_if_sleeping(shm->peer);
    return true;
}

static ssize_t shm_send(struct link *link, const struct iovec *parts, int count)
{
    struct shm_link *shm = shm_of(link);
    ssize_t total = 0;
    if (shm->peer->lost)
        return -1;
    for (int i = 0; i < count; i++) {
        size_t done = lend(shm, &parts[i]) ? parts[i].iov_len : 0;
        total += (ssize_t)done;
        while (done < parts[i].iov_len) {
            size_t left = parts[i].iov_len - done;
            size_t n = ring_write(&shm->out, (const char *)parts[i].iov_base + done,
                                  left < PUBLISH_BYTES ? left : PUBLISH_BYTES);
            if (!n)
                return total;
            wake_if_sleeping(shm->peer);
            done += n;
            total += (ssize_t)n;
        }
    }
    return total;
}

static void shm_end_send(struct link *link)
{
    ring_end_write(&shm_of(link)->out);
}

/* The next bytes lie in the peer's memory: finds them. */
static bool borrow(struct shm_link *shm, const struct ring_reference *reference)
{
    shm->borrowed = lending_resolve(&shm->peer->lending, reference);
    shm->borrowed_left = shm->borrowed ? (size_t)reference->length : 0;
    if (!shm->borrowed) /* the owner may have freed what it took back */
        peer_lose(shm->peer, atomic_load(&shm->in.memory->revoked) ? ECANCELED : EBADMSG);
    return shm->borrowed;
}

/* Nothing more can come once the peer is lost and its ring is empty. */
static ssize_t shm_view(struct link *link, const void **data, size_t limit)
{
    struct shm_link *shm = shm_of(link);
    bool lost = shm->peer->lost;
    struct ring_reference reference;
    if (!shm->borrowed_left && ring_follow(&shm->in, &reference) && !borrow(shm, &reference))
        return -1;
    if (shm->borrowed_left) {
        *data = shm->borrowed;
        link->storing = &shm->peer->reduced;
        return (ssize_t)(limit < shm->borrowed_left ? limit : shm->borrowed_left);
    }
    link->storing = NULL;
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
        shm->borrowed += n;
        shm->borrowed_left -= n;
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

static ssize_t receive_part(struct link *link, char *to, size_t length)
{
    struct shm_link *shm = shm_of(link);
    size_t done = 0;
    while (done < length) {
        const void *from;
        size_t left = length - done;
        ssize_t n = shm_view(link, &from, left < PUBLISH_BYTES ? left : PUBLISH_BYTES);
        if (n <= 0)
            return done ? (ssize_t)done : n;
        copying_copy(shm->borrowed_left ? &shm->peer->received : NULL, to + done, from, (size_t)n);
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
        shm->out.copying = &peer->copying;
        shm->in = rings[channel];
        peer->links[channel] = &shm->link;
    }
    struct shm_link *first = shm_of(peer->links[0]);
    peer->lending.granted = &first->out.memory->granted;
    peer->lending.grants = &first->in.memory->granted;
    peer->transport = TRANSPORT_shm;
    mesh->has[TRANSPORT_shm] = true;
    if (!platform_poller_add(mesh->bell, peer->doorbell, POLLER_READ, peer))
        return status_set_errno(status, errno, "can't listen to the doorbell of rank %d", peer->rank);
    return HVD_OK;
}
