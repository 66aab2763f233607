/* shm_link.c - the links of shm.c: messages through a ring each way, or read in place in the sender's
 * memory, and the doorbell that wakes a sleeping peer. Under the progress lock. */
#include "transport/shm_link.h"

#include "base/status.h"

#include <errno.h>
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
    atomic_fetch_or(&memory->signaled[bit / 64], (uint64_t)1 << bit % 64);
    atomic_fetch_or(&memory->any_signaled, 1U << bit / 64);
    wake_if_sleeping(shm->hub);
}

/* Behind the bytes, which the peer looks for when it has taken the mark. */
static void mark_news(const struct shm_link *shm)
{
    struct segment_memory *memory = shm->peer->segment->memory;
    if (shm->link.channel > 0 || !memory->marked)
        return;
    int index = shm->link.mesh->index;
    atomic_fetch_or(&memory->marks[index % MESH_NEWS_BITS / 64], (uint64_t)1 << index % 64);
}

/* ---- link_operations ---------------------------------------------------------------------------------- */

/* Shows the peer the first of these bytes in place, if it can and should read them there. Returns how many.
 */
static size_t lend(struct shm_link *shm, const struct iovec *part)
{
    struct ring_reference reference;
    struct shm_peer *peer = shm->peer, *owner = peer->hub;
    size_t batch_bytes = shm->link.batch_bytes;
    if (!shm->link.lends)
        return 0;
    if (part->iov_len < LEND_BYTES || !path_shares(&peer->path, batch_bytes) ||
        !lending_refer(&owner->lending, owner->doorbell, part, &reference)) {
        if (peer->path.rule != PATH_DIRECT ||
            !lending_is_readable(&owner->lending, owner->doorbell, part->iov_base, part->iov_len))
            return 0;
        reference = (struct ring_reference){0, (uintptr_t)part->iov_base, part->iov_len};
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
    shm->out.stores = &shm->peer->path.stores[path_size(shm->link.batch_bytes)];
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
            mark_news(shm);
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

/* The next bytes are in the peer's memory: finds them. */
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
    ssize_t n = lending_read(&shm->peer->hub->lending, to, shm->address, wanted);
    if (n != (ssize_t)wanted) {
        lose_lender(shm, n < 0 ? errno : EFAULT);
        return -1;
    }
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

static bool drop_bytes(struct shm_link *shm, size_t n)
{
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

static bool shm_consume(struct link *link, size_t n)
{
    return drop_bytes(shm_of(link), n);
}

/* The next contiguous bytes, at most `length`. */
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
    memcpy(to, from, (size_t)n);
    return n;
}

static ssize_t receive_part(struct link *link, char *to, size_t length)
{
    size_t done = 0;
    while (done < length) {
        ssize_t n = receive_piece(shm_of(link), to + done, length - done);
        if (n <= 0)
            return done ? (ssize_t)done : n;
        if (!drop_bytes(shm_of(link), (size_t)n))
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

static bool shm_is_empty(const struct link *link)
{
    const struct shm_link *shm = (const struct shm_link *)link;
    return !shm->borrowed_left && !shm->peer->peer->lost && ring_is_empty(&shm->in);
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

const struct link_operations shm_link_operations = {
    .send = shm_send,
    .end_send = shm_end_send,
    .receive = shm_receive,
    .view = shm_view,
    .consume = shm_consume,
    .is_empty = shm_is_empty,
    .end_receive = shm_end_receive,
    .taken = shm_taken,
    .revoke = shm_revoke,
    .news = shm_news,
};
