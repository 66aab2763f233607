/* faulty.c - see faulty.h. */
#include "faulty.h"

#include "random.h"
#include "transport/mesh_open.h"
#include "transport/peer.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define RANKS 128

struct faulty_link {
    struct link link;
    struct link *inner; /* that of the transport behind */
    struct peer *peer;
    uint64_t random;
    bool broken;
};

static atomic_int losing_channel = -1;
static atomic_long left_to_lose;
static atomic_uint dials;
static atomic_bool counts;
static atomic_long looks[RANKS];

void faulty_lose_after(int channel, long bytes)
{
    left_to_lose = bytes;
    losing_channel = channel;
}

void faulty_count(void)
{
    counts = true;
}

long faulty_looks(int rank)
{
    return looks[rank];
}

static struct faulty_link *faulty_of(struct link *link)
{
    return (struct faulty_link *)link;
}

/* ---- links -------------------------------------------------------------------------------------------- */

static void count_look(const struct faulty_link *faulty)
{
    atomic_fetch_add(&looks[faulty->peer->mesh->rank % RANKS], 1);
}

/* How many of so many bytes move now: often all, sometimes a few or none; not all only in whole grains. */
static size_t some_of(struct faulty_link *faulty, size_t bytes, size_t grain)
{
    count_look(faulty);
    if (counts)
        return bytes;
    uint64_t random = random_next(&faulty->random);
    size_t most = random % 4 == 0 ? 0 : random % 4 == 1 ? 25 : random % 4 == 2 ? 5000 : bytes;
    if (most >= bytes)
        return bytes;
    size_t some = (random >> 8) % (most + 1);
    return some - some % grain;
}

/* Of the first part that has bytes. */
static struct iovec part_of(struct faulty_link *faulty, const struct iovec *parts, int count, size_t grain)
{
    for (; count > 1 && !parts->iov_len; count--)
        parts++;
    return (struct iovec){parts->iov_base, some_of(faulty, parts->iov_len, grain)};
}

static bool is_lost(struct faulty_link *faulty, size_t bytes)
{
    if (faulty->link.channel == losing_channel &&
        atomic_fetch_sub(&left_to_lose, (long)bytes) < (long)bytes) {
        losing_channel = -1;
        faulty->broken = true;
        peer_lose(faulty->peer, ECONNRESET);
    }
    return faulty->broken;
}

static ssize_t faulty_send(struct link *link, const struct iovec *parts, int count)
{
    struct faulty_link *faulty = faulty_of(link);
    struct iovec part = part_of(faulty, parts, count, 16); /* elements are sent whole, see transport.h */
    if (is_lost(faulty, part.iov_len))
        return -1;
    faulty->inner->lends = link->lends;
    faulty->inner->batch_bytes = link->batch_bytes;
    ssize_t n = part.iov_len ? link_send(faulty->inner, &part, 1) : 0;
    link->lent = faulty->inner->lent;
    return n;
}

static void faulty_end_send(struct link *link)
{
    faulty_of(link)->inner->operations->end_send(faulty_of(link)->inner);
}

static ssize_t faulty_receive(struct link *link, const struct iovec *parts, int count)
{
    struct faulty_link *faulty = faulty_of(link);
    struct iovec part = part_of(faulty, parts, count, 1);
    if (faulty->broken)
        return -1;
    if (!part.iov_len && !link->channel)
        peer_report(faulty->peer);
    return part.iov_len ? link_receive(faulty->inner, &part, 1) : 0;
}

static ssize_t faulty_view(struct link *link, const void **data, size_t limit)
{
    struct faulty_link *faulty = faulty_of(link);
    size_t some = some_of(faulty, limit, 1);
    if (faulty->broken)
        return -1;
    ssize_t n = some ? faulty->inner->operations->view(faulty->inner, data, some) : 0;
    link->storing = faulty->inner->storing;
    return n;
}

static bool faulty_consume(struct link *link, size_t n)
{
    return faulty_of(link)->inner->operations->consume(faulty_of(link)->inner, n);
}

static void faulty_end_receive(struct link *link)
{
    faulty_of(link)->inner->operations->end_receive(faulty_of(link)->inner);
}

static bool faulty_taken(struct link *link, uint64_t lent)
{
    return faulty_of(link)->inner->operations->taken(faulty_of(link)->inner, lent);
}

static void faulty_revoke(struct link *link)
{
    faulty_of(link)->inner->operations->revoke(faulty_of(link)->inner);
}

static bool faulty_news(struct link *link)
{
    struct link *inner = faulty_of(link)->inner;
    count_look(faulty_of(link));
    inner->want_read = link->want_read;
    inner->want_write = link->want_write;
    inner->want_taken = link->want_taken;
    return inner->operations->news(inner);
}

#define OPERATIONS                                                                                           \
    .send = faulty_send, .end_send = faulty_end_send, .receive = faulty_receive, .view = faulty_view,        \
    .consume = faulty_consume, .end_receive = faulty_end_receive, .news = faulty_news

static const struct link_operations operations = {OPERATIONS};
static const struct link_operations lending_operations = {OPERATIONS, .taken = faulty_taken,
                                                          .revoke = faulty_revoke};

/* ---- set-up ------------------------------------------------------------------------------------------- */

static struct link *wrap(struct peer *peer, int channel)
{
    struct faulty_link *faulty = calloc(1, sizeof *faulty);
    struct link *inner = peer->links[channel];
    if (!faulty)
        abort();
    *faulty = (struct faulty_link){
        .link = {.operations = inner->operations->taken ? &lending_operations : &operations,
                 .mesh = peer->mesh,
                 .peer = peer->rank,
                 .channel = channel},
        .inner = inner,
        .peer = peer,
        .random = (uint64_t)(peer->mesh->rank * 1000 + peer->rank * 10 + channel + 1),
    };
    return &faulty->link;
}

static bool is_wrapped(const struct link *link)
{
    return link->operations == &operations || link->operations == &lending_operations;
}

static hvd_code open_and_wrap(const struct transport *inner, struct peer *peer, int channel, int connection,
                              struct tls *tls, void *state, hvd_status *status)
{
    hvd_code code = inner->open(peer, channel, connection, tls, state, status);
    for (int i = 0; !code && i < peer->mesh->channels; i++)
        if (peer->links[i] && !is_wrapped(peer->links[i]))
            peer->links[i] = wrap(peer, i);
    return code;
}

static void unwrap_and_close(const struct transport *inner, struct peer *peer)
{
    for (int i = 0; i < peer->mesh->channels; i++)
        if (peer->links[i] && is_wrapped(peer->links[i]))
            free(faulty_of(peer->links[i]));
    inner->close_peer(peer);
}

/* The first dial finds too many others waiting, the second one's connection ends at once; and so now and
 * then. */
static int dial_now_and_then(const struct transport *inner, const char *address)
{
    unsigned dial = dials++ % 32;
    if (dial == 0) {
        errno = EAGAIN;
        return -1;
    }
    int fd = inner->dial(address);
    if (fd >= 0 && dial == 1)
        shutdown(fd, SHUT_RDWR);
    return fd;
}

/* Only by name: "auto" has shared memory and TCP already, whose state this shares. */
static hvd_code listen_if_named(const struct transport *inner, struct mesh *mesh,
                                const struct mesh_config *config, struct listeners *listeners,
                                hvd_status *status)
{
    bool named = strcmp(config->settings->transport, "auto") != 0;
    return named ? inner->listen(mesh, config, listeners, status) : HVD_OK;
}

#define FAULTY(inner)                                                                                        \
    static hvd_code listen_##inner(struct mesh *mesh, const struct mesh_config *config,                      \
                                   struct listeners *listeners, hvd_status *status)                          \
    {                                                                                                        \
        return listen_if_named(&transport_##inner, mesh, config, listeners, status);                         \
    }                                                                                                        \
    static int dial_##inner(const char *address)                                                             \
    {                                                                                                        \
        return dial_now_and_then(&transport_##inner, address);                                               \
    }                                                                                                        \
    static hvd_code open_##inner(struct peer *peer, int channel, int connection, struct tls *tls,            \
                                 void *state, hvd_status *status)                                            \
    {                                                                                                        \
        return open_and_wrap(&transport_##inner, peer, channel, connection, tls, state, status);             \
    }                                                                                                        \
    static void close_##inner(struct peer *peer)                                                             \
    {                                                                                                        \
        unwrap_and_close(&transport_##inner, peer);                                                          \
    }                                                                                                        \
    static struct transport faulty_##inner;                                                                  \
    __attribute__((constructor)) static void add_##inner(void)                                               \
    {                                                                                                        \
        faulty_##inner = transport_##inner;                                                                  \
        faulty_##inner.name = "faulty-" #inner;                                                              \
        faulty_##inner.listen = listen_##inner;                                                              \
        faulty_##inner.dial = dial_##inner;                                                                  \
        faulty_##inner.open = open_##inner;                                                                  \
        faulty_##inner.close_peer = close_##inner;                                                           \
        faulty_##inner.is_drained = NULL; /* the peer of a lost link lives, and sends no cause */            \
        transport_add(&faulty_##inner);                                                                      \
    }
FAULTY(shm)
FAULTY(tcp)
