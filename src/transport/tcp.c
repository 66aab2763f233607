/* tcp.c - links over TCP: one socket per peer and channel, non-blocking, written straight from the tensors.
 * Edge-triggered: `readable` and `writable` say whether a system call may be worth it. */
#include "base/platform.h"
#include "base/socket.h"
#include "base/status.h"
#include "transport/peer.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define BUFFER_BYTES   ((size_t)256 << 10)
#define CONTROL_BYTES  ((size_t)16 << 10)
#define BUFFER_ALIGN   64
#define PARTS_PER_CALL 64

/* A peer's state: its links by channel, NULL where there is none yet. */
struct tcp_link {
    struct link link;
    struct peer *peer;
    int fd;
    struct tls *tls; /* NULL: not encrypted */
    bool readable, writable;
    bool ending, ended; /* the kernel has reported the end; nothing is left to read before it */
    /* Bytes received ahead of receive() or shown by view(). */
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

static ssize_t tcp_send(struct link *link, const struct iovec *parts, int count)
{
    struct tcp_link *tcp = tcp_of(link);
    struct msghdr message = {.msg_iov = (struct iovec *)parts,
                             .msg_iovlen = (size_t)(count < PARTS_PER_CALL ? count : PARTS_PER_CALL)};
    if (tcp->peer->lost)
        return -1;
    if (!tcp->writable)
        return 0;
    ssize_t n = tcp->tls ? tls_write(tcp->tls, parts, count) : sendmsg(tcp->fd, &message, MSG_NOSIGNAL);
    if (n >= 0)
        return n;
    if (errno == EINTR)
        return 0;
    tcp->writable = false;
    if (errno == EAGAIN)
        return 0;
    peer_lose(tcp->peer, errno); /* what it sent before can still be read */
    return -1;
}

/* A stream needs no padding. */
static void tcp_end_send(struct link *link)
{
    (void)link;
}

/* ---- receiving ---------------------------------------------------------------------------------------- */

static size_t bytes_of(const struct iovec *parts, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += parts[i].iov_len;
    return bytes;
}

/* As recvmsg, in link_operations' terms. */
static ssize_t receive_now(struct tcp_link *tcp, struct iovec *parts, int count)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    size_t asked = bytes_of(parts, count);
    if (!tcp->readable || !asked)
        return tcp->ended && asked ? -1 : 0;
    ssize_t n;
    do
        n = tcp->tls ? tls_read(tcp->tls, parts, count) : recvmsg(tcp->fd, &message, 0);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        /* Less than asked: that was all, and more will be news; but the end is reported once only. */
        tcp->readable = (size_t)n == asked || tcp->ending;
        return n;
    }
    int error = n < 0 ? errno : 0;
    tcp->readable = false;
    if (error == EAGAIN)
        return 0;
    tcp->ended = true;
    peer_lose(tcp->peer, error);
    return -1;
}

static void compact(struct tcp_link *tcp)
{
    memmove(tcp->buffer, tcp->buffer + tcp->start, tcp->length);
    tcp->start = 0;
}

/* Receives until `wanted` bytes lie in the buffer, or what is there. */
static ssize_t fill_buffer(struct tcp_link *tcp, size_t wanted)
{
    if (tcp->start + wanted > tcp->capacity)
        compact(tcp);
    struct iovec part = {tcp->buffer + tcp->start + tcp->length, wanted - tcp->length};
    ssize_t n = receive_now(tcp, &part, 1);
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

static size_t take_buffered(struct tcp_link *tcp, const struct iovec *parts, int count)
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

/* Straight into the parts. */
static ssize_t receive_parts(struct tcp_link *tcp, const struct iovec *parts, int count)
{
    struct iovec copies[PARTS_PER_CALL];
    if (count > PARTS_PER_CALL)
        count = PARTS_PER_CALL;
    memcpy(copies, parts, (size_t)count * sizeof *parts);
    return receive_now(tcp, copies, count);
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
    return n > 0 ? (ssize_t)take_buffered(tcp, parts, count) : n;
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
    return !tcp->length && !tcp->readable && !tcp->ended;
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
    return (link->want_read && (tcp->readable || tcp->length > tcp->unusable)) ||
           (link->want_write && tcp->writable);
}

static void tcp_ready(struct link *link, unsigned what)
{
    struct tcp_link *tcp = tcp_of(link);
    mesh_resume_for_news(tcp->peer->mesh);
    if (link->channel == 0 && what & (POLLER_READ | POLLER_END))
        peer_report(tcp->peer);
    tcp->readable |= (what & POLLER_READ) != 0;
    tcp->writable |= (what & POLLER_WRITE) != 0;
    if (what & POLLER_END) {
        tcp->ending = tcp->readable = true;
        peer_lose(tcp->peer, socket_error(tcp->fd));
    }
}

static bool tcp_is_delivered(const struct link *link)
{
    const struct tcp_link *tcp = (const struct tcp_link *)link;
    int unacknowledged;
    return tcp->peer->lost || ioctl(tcp->fd, SIOCOUTQ, &unacknowledged) || !unacknowledged;
}

/* The ends of its connections are reported in any order. */
static bool tcp_is_drained(const struct peer *peer)
{
    const struct tcp_link *const *links = peer->state;
    return links[0]->ended && !links[0]->length;
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

/* Of what passes connections on to this rank: "host" or "host:port", by the port that this rank listens at
 * unless it says another. */
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
    hvd_code code = HVD_OK;
    (void)mesh;
    snprintf(own.list[0], sizeof own.list[0], "%s", reached);
    if (*settings->network_interface || !addresses_are_loopback(settings->rendezvous))
        code = addresses_find(settings->network_interface, reached, &own, status);
    if (!code)
        code = addresses_listen(&own, settings->ports, listeners->fds, &port, status);
    if (code)
        return code;
    listeners->count = own.count;
    if (*settings->advertised_address)
        code = add_advertised(listeners, settings->advertised_address, port, status);
    for (int i = 0; i < own.count; i++)
        add_address(listeners, own.list[i], port);
    return code;
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

static int tcp_accept(int listener, char who[SOCKET_TEXT])
{
    int fd = socket_accept(listener);
    if (fd >= 0)
        socket_peer_text(fd, who);
    return fd;
}

/* A link at a time. */
static hvd_code tcp_open(struct peer *peer, int channel, int connection, struct tls *tls, void *state,
                         hvd_status *status)
{
    size_t capacity = channel == 0 ? CONTROL_BYTES : BUFFER_BYTES;
    struct tcp_link *tcp = calloc(1, sizeof *tcp);
    uint8_t *buffer = aligned_alloc(BUFFER_ALIGN, capacity);
    (void)state;
    if (!peer->state)
        peer->state = calloc((size_t)peer->mesh->channels, sizeof tcp);
    struct tcp_link **links = peer->state;
    if (!tcp || !buffer || !links) {
        free(tcp);
        free(buffer);
        socket_close(&connection);
        tls_free(tls);
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    }
    *tcp = (struct tcp_link){
        .link = {.operations = &operations, .mesh = peer->mesh, .peer = peer->rank, .channel = channel},
        .peer = peer,
        .fd = connection,
        .tls = tls,
        .readable = true,
        .writable = true,
        .buffer = buffer,
        .capacity = capacity};
    links[channel] = tcp;
    peer->links[channel] = &tcp->link;
    socket_send_at_once(connection);
    return HVD_OK;
}

static bool tcp_attach(struct peer *peer)
{
    struct tcp_link **links = peer->state;
    bool done = true;
    for (int channel = 0; done && channel < peer->mesh->channels; channel++)
        done = mesh_watch_link(peer, links[channel]->fd, &links[channel]->link);
    return done;
}

/* ---- the end ------------------------------------------------------------------------------------------ */

/* A close with unread bytes would reset the connection, and the peer might lose the last bytes. */
static void close_link(struct tcp_link *tcp)
{
    char unread[4096];
    /* A child that has inherited the socket would keep the hub's poller reporting it. */
    platform_poller_remove(tcp->peer->mesh->hub->sockets, tcp->fd);
    shutdown(tcp->fd, SHUT_WR);
    for (int i = 0; i < 256 && recv(tcp->fd, unread, sizeof unread, 0) > 0;)
        i++;
    socket_close(&tcp->fd);
    tls_free(tcp->tls);
    free(tcp->buffer);
    free(tcp);
}

static void tcp_close_peer(struct peer *peer)
{
    struct tcp_link **links = peer->state;
    for (int channel = 0; channel < peer->mesh->channels; channel++)
        if (links[channel])
            close_link(links[channel]);
    free(links);
}

static void tcp_abandon(struct peer *peer)
{
    struct tcp_link **links = peer->state;
    for (int channel = 0; channel < peer->mesh->channels; channel++)
        if (links[channel])
            socket_close(&links[channel]->fd);
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
    .open = tcp_open,
    .attach = tcp_attach,
    .is_drained = tcp_is_drained,
    .close_peer = tcp_close_peer,
    .abandon = tcp_abandon,
};
