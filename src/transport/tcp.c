/* tcp.c - the transport over TCP: a stream per peer and channel (lanes.h), sent straight from the tensors.
 * Threads as in transport.h. */
#include "base/platform_poller.h"
#include "base/status.h"
#include "net/socket.h"
#include "transport/lanes.h"
#include "transport/mesh_open.h"
#include "transport/peer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BUFFER_BYTES  ((size_t)256 << 10)
#define CONTROL_BYTES ((size_t)16 << 10)
#define BUFFER_ALIGN  64

/* Bytes that a striped link has moved when its further lanes are opened. */
#define LANES_AFTER ((size_t)4 << 20)

/* A peer's state is an array of its links by channel; NULL: there is none yet. */
struct tcp_link {
    struct link link;
    struct peer *peer;
    struct lanes lanes;
    size_t moved; /* bytes both ways, until the further lanes are opened */
    bool spread;  /* the further lanes are opened, or the peer opens them */
    /* Bytes received ahead of receive() or shown by view(): `length` from `start` on. */
    uint8_t *buffer;
    size_t capacity, start, length;
    size_t unusable; /* bytes that the last view showed and that were too few to use */
    bool fresh;      /* at the start of a message, which a view shows aligned */
};

static struct tcp_link *tcp_of(struct link *link)
{
    return (struct tcp_link *)link;
}

/* ---- sending ------------------------------------------------------------------------------------------ */

/* The higher rank opens the lanes, whichever end sends the bytes. */
static ssize_t count_moved(struct tcp_link *tcp, ssize_t n)
{
    if (tcp->spread || n <= 0)
        return n;
    tcp->moved += (size_t)n;
    if (tcp->moved >= LANES_AFTER)
        tcp->spread = peer_want_lanes(tcp->peer, tcp->link.channel);
    return n;
}

static ssize_t tcp_send(struct link *link, const struct iovec *parts, int count)
{
    struct tcp_link *tcp = tcp_of(link);
    if (tcp->peer->lost)
        return -1;
    ssize_t n = lanes_send(&tcp->lanes, parts, count);
    if (n < 0)
        peer_lose(tcp->peer, errno); /* what it sent before can still be read */
    return count_moved(tcp, n);
}

/* A stream needs no padding. */
static void tcp_end_send(struct link *link)
{
    (void)link;
}

/* ---- receiving ---------------------------------------------------------------------------------------- */

static ssize_t receive_parts(struct tcp_link *tcp, const struct iovec *parts, int count)
{
    ssize_t n = lanes_receive(&tcp->lanes, parts, count);
    if (n < 0)
        peer_lose(tcp->peer, errno);
    return count_moved(tcp, n);
}

static void compact(struct tcp_link *tcp)
{
    memmove(tcp->buffer, tcp->buffer + tcp->start, tcp->length);
    tcp->start = 0;
}

/* Receives until `wanted` bytes are in the buffer, or all that have arrived. */
static ssize_t fill_buffer(struct tcp_link *tcp, size_t wanted)
{
    if (tcp->start + wanted > tcp->capacity)
        compact(tcp);
    struct iovec part = {tcp->buffer + tcp->start + tcp->length, wanted - tcp->length};
    ssize_t n = receive_parts(tcp, &part, 1);
    if (n > 0)
        tcp->length += (size_t)n;
    return n;
}

static void drop(struct tcp_link *tcp, size_t n)
{
    tcp->start += n;
    tcp->length -= n;
    tcp->unusable = 0;
    if (!tcp->length)
        tcp->start = 0;
}

static size_t copy_buffered(struct tcp_link *tcp, const struct iovec *parts, int count)
{
    size_t total = 0;
    for (int i = 0; i < count && tcp->length; i++) {
        size_t n = parts[i].iov_len < tcp->length ? parts[i].iov_len : tcp->length;
        memcpy(parts[i].iov_base, tcp->buffer + tcp->start, n);
        drop(tcp, n);
        total += n;
    }
    return total;
}

/* Channel 0 carries small messages: one system call fetches several. */
static ssize_t tcp_receive(struct link *link, const struct iovec *parts, int count)
{
    struct tcp_link *tcp = tcp_of(link);
    ssize_t n = 1;
    if (!tcp->length && link->channel > 0)
        return receive_parts(tcp, parts, count);
    if (!tcp->length)
        n = fill_buffer(tcp, tcp->capacity);
    return n > 0 ? (ssize_t)copy_buffered(tcp, parts, count) : n;
}

static ssize_t tcp_view(struct link *link, const void **data, size_t limit)
{
    struct tcp_link *tcp = tcp_of(link);
    ssize_t n = 0;
    if (limit > tcp->capacity)
        limit = tcp->capacity;
    if (tcp->fresh && tcp->start % 16) /* only where bytes were received ahead: on channel 0 */
        compact(tcp);
    tcp->fresh = false;
    if (tcp->length < limit)
        n = fill_buffer(tcp, limit);
    size_t shown = tcp->length < limit ? tcp->length : limit;
    tcp->unusable = shown < 16 && shown < limit ? shown : 0;
    *data = tcp->buffer + tcp->start;
    return shown || n >= 0 ? (ssize_t)shown : -1;
}

static bool tcp_consume(struct link *link, size_t n)
{
    drop(tcp_of(link), n);
    return true;
}

static bool tcp_is_empty(const struct link *link)
{
    const struct tcp_link *tcp = (const struct tcp_link *)link;
    return !tcp->length && !lanes_may_receive(&tcp->lanes) && !lanes_ended(&tcp->lanes);
}

static void tcp_end_receive(struct link *link)
{
    tcp_of(link)->unusable = 0;
    tcp_of(link)->fresh = true;
}

/* ---- for the mesh ------------------------------------------------------------------------------------- */

static bool tcp_news(struct link *link)
{
    const struct tcp_link *tcp = tcp_of(link);
    return (link->want_read && (lanes_may_receive(&tcp->lanes) || tcp->length > tcp->unusable)) ||
           (link->want_write && lanes_may_send(&tcp->lanes));
}

static void tcp_ready(struct link *link, unsigned what)
{
    struct tcp_link *tcp = tcp_of(link);
    mesh_resume_for_news(tcp->peer->mesh);
    if (link->channel == 0 && what & (POLLER_READ | POLLER_END))
        peer_report(tcp->peer);
    lanes_ready(&tcp->lanes, what);
    if (what & POLLER_END)
        peer_lose(tcp->peer, lanes_error(&tcp->lanes));
}

static bool tcp_is_delivered(const struct link *link)
{
    const struct tcp_link *tcp = (const struct tcp_link *)link;
    return tcp->peer->lost || lanes_are_delivered(&tcp->lanes);
}

static bool tcp_find_broken(struct peer *peer, unsigned limit, char *path, size_t capacity)
{
    struct tcp_link **links = peer->state;
    int broken = -1;
    for (int channel = 0; channel < peer->mesh->channels; channel++) {
        int fd = lanes_find_broken(&links[channel]->lanes, limit);
        broken = broken < 0 ? fd : broken;
    }
    char own[SOCKET_TEXT], other[SOCKET_TEXT];
    if (broken >= 0)
        snprintf(path, capacity, "%s to %s", socket_local_address(broken, own) ? own : "an unknown address",
                 socket_peer_text(broken, other));
    return broken >= 0;
}

/* The ends of a peer's connections are reported in any order. */
static bool tcp_is_drained(const struct peer *peer)
{
    const struct tcp_link *const *links = peer->state;
    return lanes_ended(&links[0]->lanes) && !links[0]->length;
}

static const struct link_operations operations = {
    .send = tcp_send,
    .end_send = tcp_end_send,
    .receive = tcp_receive,
    .view = tcp_view,
    .consume = tcp_consume,
    .is_empty = tcp_is_empty,
    .end_receive = tcp_end_receive,
    .is_delivered = tcp_is_delivered,
    .news = tcp_news,
    .ready = tcp_ready,
};

/* ---- set-up ------------------------------------------------------------------------------------------- */

static void add_address(struct listeners *listeners, const char *numeric, int port)
{
    append_text(listeners->addresses, sizeof listeners->addresses, "%s%s port %d",
                *listeners->addresses ? "\n" : "", numeric, port);
}

/* Adds the addresses of a proxy that forwards connections to this rank: "host:port", or "host" if its port is
 * the one at which this rank listens. */
static hvd_code add_advertised(struct listeners *listeners, const char *advertised, int port,
                               hvd_status *status)
{
    char host[256], address[300], numeric[SOCKET_TEXT];
    const char *given = "";
    struct addrinfo *found;
    hvd_status fault = {.text = "it is not of the form host or host:port"};
    bool whole = socket_split(advertised, host, sizeof host, &given);
    port = *given ? atoi(given) : port;
    snprintf(address, sizeof address, "[%s]:%d", host, port);
    if (!whole || socket_resolve(address, &found, &fault))
        return status_set(status, HVD_INVALID_ARGUMENT, "HOROVOD_ADVERTISED_ADDRESS=%s can't be used: %.400s",
                          advertised, fault.text);
    for (const struct addrinfo *each = found; each; each = each->ai_next)
        if (socket_host_text(each->ai_addr, numeric))
            add_address(listeners, numeric, port);
    freeaddrinfo(found);
    return HVD_OK;
}

static hvd_code tcp_listen(struct mesh *mesh, const struct mesh_config *config, struct listeners *listeners,
                           hvd_status *status)
{
    const struct settings *settings = config->settings;
    const char *reached = rendezvous_local_address(config->rendezvous);
    struct addresses own = {.count = 1};
    int port;
    (void)mesh;
    snprintf(own.list[0], sizeof own.list[0], "%s", reached);
    if (*settings->network_interface || !addresses_are_loopback(settings->rendezvous))
        TRY(addresses_find(settings->network_interface, reached, &own, status));
    TRY(addresses_listen(&own, settings->ports, listeners->fds, &port, status));
    listeners->count = own.count;
    if (*settings->advertised_address)
        TRY(add_advertised(listeners, settings->advertised_address, port, status));
    for (int i = 0; i < own.count; i++)
        add_address(listeners, own.list[i], port);
    return HVD_OK;
}

static bool tcp_reachable(const char *mine, const char *theirs)
{
    (void)mine;
    (void)theirs;
    return true;
}

static int tcp_dial(const char *address)
{
    char numeric[SOCKET_TEXT];
    int port;
    errno = EINVAL;
    return sscanf(address, "%79s port %d", numeric, &port) == 2 ? socket_connect_numeric(numeric, port) : -1;
}

static bool tcp_route(const char *address, struct route *route)
{
    char numeric[SOCKET_TEXT];
    return sscanf(address, "%79s", numeric) == 1 && addresses_route(numeric, route);
}

static int tcp_accept(int listener, char who[SOCKET_TEXT])
{
    int fd = socket_accept(listener);
    if (fd >= 0)
        socket_peer_text(fd, who);
    return fd;
}

static struct tcp_link *make_link(struct peer *peer, int channel, bool striped)
{
    size_t capacity = channel == 0 ? CONTROL_BYTES : BUFFER_BYTES;
    struct tcp_link *tcp = calloc(1, sizeof *tcp);
    uint8_t *buffer = aligned_alloc(BUFFER_ALIGN, capacity);
    if (!tcp || !buffer) {
        free(tcp);
        free(buffer);
        return NULL;
    }
    *tcp = (struct tcp_link){
        .link = {.operations = &operations, .mesh = peer->mesh, .peer = peer->rank, .channel = channel},
        .peer = peer,
        .spread = !striped || peer->rank > peer->mesh->rank,
        .buffer = buffer,
        .capacity = capacity};
    lanes_init(&tcp->lanes, striped, settings_silence_limit(peer->mesh->hub->settings));
    return tcp;
}

static bool watch(const struct tcp_link *tcp, int lane)
{
    return mesh_watch_link(tcp->peer, tcp->lanes.list[lane].fd, (struct link *)&tcp->link);
}

/* Opens one link, or adds one more lane to it. */
static hvd_code tcp_open(struct peer *peer, int number, int connection, struct tls *tls, void *state,
                         hvd_status *status)
{
    int channel = number % peer->mesh->channels, lane = number / peer->mesh->channels;
    (void)state;
    if (!peer->state)
        peer->state = calloc((size_t)peer->mesh->channels, sizeof(struct tcp_link *));
    struct tcp_link **links = peer->state;
    if (links && !links[channel])
        links[channel] = make_link(peer, channel, lane > 0);
    if (!links || !links[channel] || !lanes_add(&links[channel]->lanes, connection, tls)) {
        socket_close(&connection);
        tls_free(tls);
        return status_no_memory(status);
    }
    if (lane > 1 && peer->mesh->attached && !watch(links[channel], links[channel]->lanes.count - 1))
        return status_set_errno(status, errno, "rank %d can't wait for news of rank %d", peer->mesh->rank,
                                peer->rank);
    if (lane < 2)
        peer->links[channel] = &links[channel]->link;
    return HVD_OK;
}

static bool tcp_attach(struct peer *peer)
{
    struct tcp_link **links = peer->state;
    bool done = true;
    for (int channel = 0; channel < peer->mesh->channels; channel++)
        for (int lane = 0; done && lane < links[channel]->lanes.count; lane++)
            done = watch(links[channel], lane);
    return done;
}

/* ---- the end ------------------------------------------------------------------------------------------ */

static void tcp_close_peer(struct peer *peer)
{
    struct tcp_link **links = peer->state;
    for (int channel = 0; channel < peer->mesh->channels; channel++) {
        struct tcp_link *tcp = links[channel];
        if (!tcp)
            continue;
        /* A child that has inherited a socket would keep the hub's poller reporting it. */
        for (int lane = 0; lane < tcp->lanes.count; lane++)
            platform_poller_remove(peer->mesh->hub->poller, tcp->lanes.list[lane].fd);
        lanes_close(&tcp->lanes);
        free(tcp->buffer);
        free(tcp);
    }
    free(links);
}

static void tcp_abandon(struct peer *peer)
{
    struct tcp_link **links = peer->state;
    for (int channel = 0; channel < peer->mesh->channels; channel++)
        if (links[channel])
            lanes_abandon(&links[channel]->lanes);
}

const struct transport transport_tcp = {
    .name = "tcp",
    .needs = "a network between their hosts",
    .connection_per_channel = true,
    .encrypts = true,
    .listen = tcp_listen,
    .reachable = tcp_reachable,
    .dial = tcp_dial,
    .accept = tcp_accept,
    .route = tcp_route,
    .open = tcp_open,
    .attach = tcp_attach,
    .find_broken = tcp_find_broken,
    .is_drained = tcp_is_drained,
    .close_peer = tcp_close_peer,
    .abandon = tcp_abandon,
};
