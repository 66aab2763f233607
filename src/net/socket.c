/* socket.c - sockets, their addresses as text, and framed streams over them. No state; any thread. */
#include "net/socket.h"

#include "base/clock.h"
#include "base/platform_poller.h"
#include "base/status.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG    4096 /* the kernel cuts it to its own limit */
#define SOCK_FLAGS (SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)

void socket_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- listening --------------------------------------------------------------------------------------- */

static int port_of(const struct sockaddr_storage *address)
{
    struct sockaddr_in either; /* the port is at the same place in both families */
    memcpy(&either, address, sizeof either);
    return ntohs(either.sin_port);
}

static int find_numeric(const char *address, int port, struct addrinfo **found)
{
    char service[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(address, service, &hints, found) == 0)
        return 0;
    errno = EADDRNOTAVAIL;
    return -1;
}

/* Returns a descriptor, or -1: errno. */
static int listen_on(const struct addrinfo *address, bool given_port)
{
    int off = 0, on = 1;
    int fd = socket(address->ai_family, SOCK_FLAGS, 0);
    if (fd < 0)
        return -1;
    /* Dual-stack, whatever the system's default is. */
    if (address->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    /* Connections of an earlier job in TIME_WAIT must not keep its port from the next. */
    if (given_port)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int socket_listen(const char *address, int *port)
{
    struct addrinfo *found;
    if (find_numeric(address, *port, &found))
        return -1;
    int fd = listen_on(found, *port != 0), error = errno;
    freeaddrinfo(found);
    struct sockaddr_storage bound = {0};
    socklen_t length = sizeof bound;
    if (fd >= 0 && getsockname(fd, (struct sockaddr *)&bound, &length) == 0)
        *port = port_of(&bound);
    errno = error;
    return fd;
}

int socket_accept(int listener)
{
    return accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

bool socket_backlog(int listener, unsigned *waiting, unsigned *limit)
{
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    if (getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &length) || info.tcpi_state != TCP_LISTEN)
        return false;
    *waiting = info.tcpi_unacked; /* that is where Linux has these of a listener */
    *limit = info.tcpi_sacked;
    return true;
}

/* ---- connecting -------------------------------------------------------------------------------------- */

bool socket_split(const char *address, char *host, size_t capacity, const char **port)
{
    bool bracket = *address == '[';
    const char *first = address + bracket, *end = strchr(first, bracket ? ']' : ':');
    if (bracket && (!end || (end[1] && end[1] != ':')))
        return false;
    if (!end || (!bracket && strchr(end + 1, ':'))) /* no port; the second is an IPv6 address */
        end = address + strlen(address);
    size_t length = (size_t)(end - first);
    *port = end + (*end == ']');
    *port += **port == ':';
    if (length >= capacity)
        return false;
    memcpy(host, first, length);
    host[length] = '\0';
    return true;
}

hvd_code socket_resolve(const char *address, struct addrinfo **found, hvd_status *status)
{
    char host[256];
    const char *port;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    bool whole = socket_split(address, host, sizeof host, &port) && *host && *port;
    if (!whole || port[strspn(port, "0123456789")])
        return status_set(status, HVD_INVALID_ARGUMENT, "'%s' is no address; write host:port or [::1]:port",
                          address);
    int fault = getaddrinfo(host, port, &hints, found);
    bool for_now = fault == EAI_NONAME || fault == EAI_AGAIN || fault == EAI_FAIL || fault == EAI_NODATA;
    if (fault)
        return status_set(status, for_now ? HVD_TIMED_OUT : HVD_INVALID_ARGUMENT,
                          "the address of '%s' can't be found: %s", address, gai_strerror(fault));
    return HVD_OK;
}

int socket_connect(const struct addrinfo *address)
{
    int fd = socket(address->ai_family, SOCK_FLAGS, 0);
    if (fd < 0)
        return -1;
    /* An interrupted connect continues by itself, as one in progress does; socket_error returns how it ended.
     */
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0 || errno == EINPROGRESS || errno == EINTR)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int socket_connect_numeric(const char *address, int port)
{
    struct addrinfo *found;
    if (find_numeric(address, port, &found))
        return -1;
    int fd = socket_connect(found);
    int error = errno;
    freeaddrinfo(found);
    errno = error;
    return fd;
}

int socket_error(int fd)
{
    int error = 0;
    socklen_t length = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) ? errno : error;
}

void socket_send_at_once(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* ---- addresses as text -------------------------------------------------------------------------------- */

bool socket_host_text(const struct sockaddr *address, char text[SOCKET_TEXT])
{
    sa_family_t family = address ? address->sa_family : AF_UNSPEC;
    socklen_t length = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    return (family == AF_INET || family == AF_INET6) &&
           getnameinfo(address, length, text, SOCKET_TEXT, NULL, 0, NI_NUMERICHOST) == 0;
}

const char *socket_peer_text(int fd, char text[SOCKET_TEXT])
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    char host[SOCKET_TEXT];
    if (getpeername(fd, (struct sockaddr *)&address, &length) ||
        !socket_host_text((struct sockaddr *)&address, host)) {
        snprintf(text, SOCKET_TEXT, "an unknown address");
        return text;
    }
    snprintf(text, SOCKET_TEXT, address.ss_family == AF_INET6 ? "[%.60s]:%d" : "%.60s:%d", host,
             port_of(&address));
    return text;
}

bool socket_peer_address(int fd, char text[SOCKET_TEXT])
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    return getpeername(fd, (struct sockaddr *)&address, &length) == 0 &&
           socket_host_text((struct sockaddr *)&address, text);
}

bool socket_local_address(int fd, char text[SOCKET_TEXT])
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    return getsockname(fd, (struct sockaddr *)&address, &length) == 0 &&
           socket_host_text((struct sockaddr *)&address, text);
}

/* ---- waiting ------------------------------------------------------------------------------------------ */

int socket_poll_timeout(int64_t deadline)
{
    if (deadline == CLOCK_NEVER)
        return -1;
    int64_t left = deadline - clock_now();
    int64_t milliseconds = left <= 0 ? 0 : (left + 999999) / 1000000;
    return milliseconds > INT_MAX ? INT_MAX : (int)milliseconds;
}

bool socket_wait(int fd, short events, int64_t deadline)
{
    struct pollfd one = {fd, events, 0};
    for (;;) {
        int count = poll(&one, 1, socket_poll_timeout(deadline));
        /* Faults of the socket count as events: the next call on it returns them. */
        if (count > 0)
            return true;
        if (count == 0 && clock_now() >= deadline)
            return false;
    }
}

/* ---- polled ------------------------------------------------------------------------------------------- */

bool polled_watch(struct polled *polled, int poller, short events, void *tag)
{
    unsigned what = (events & POLLIN ? POLLER_READ : 0) | (events & POLLOUT ? POLLER_WRITE : 0);
    bool known = polled->poller == poller;
    if (polled->fd < 0 || (known && polled->events == events))
        return true;
    polled->poller = poller;
    polled->events = events;
    return known ? platform_poller_change(poller, polled->fd, what, tag)
                 : platform_poller_add(poller, polled->fd, what, tag);
}

/* Explicitly, since a child of fork() may have inherited the descriptor. */
void polled_unwatch(struct polled *polled)
{
    if (polled->poller >= 0 && polled->fd >= 0)
        platform_poller_remove(polled->poller, polled->fd);
    polled->poller = -1;
}

void polled_close(struct polled *polled)
{
    polled_unwatch(polled);
    socket_close(&polled->fd);
}

/* ---- stream ---------------------------------------------------------------------------------------- */

static ssize_t socket_read(struct stream *stream, void *bytes, size_t length)
{
    if (stream->tls)
        return tls_read(stream->tls, &(struct iovec){bytes, length}, 1);
    return recv(stream->fd, bytes, length, 0);
}

static ssize_t socket_write(struct stream *stream, const void *bytes, size_t length)
{
    if (stream->tls)
        return tls_write(stream->tls, &(struct iovec){(void *)bytes, length}, 1);
    return send(stream->fd, bytes, length, MSG_NOSIGNAL);
}

const struct stream_io stream_socket = {socket_read, socket_write};

void stream_free(struct stream *stream)
{
    tls_free(stream->tls);
    wire_writer_free(&stream->in);
    wire_writer_free(&stream->out);
}

/* After a call that returned n; STREAM_DONE: one more may move something. */
static enum stream_outcome outcome_of(ssize_t n)
{
    if (n > 0 || (n < 0 && errno == EINTR))
        return STREAM_DONE;
    if (n == 0)
        return STREAM_ENDED;
    return errno == EAGAIN ? STREAM_AGAIN : STREAM_FAILED;
}

enum stream_outcome stream_write(struct stream *stream)
{
    struct wire_writer *out = &stream->out;
    enum stream_outcome outcome = STREAM_DONE;
    while (!outcome && stream->sent < out->length) {
        ssize_t n = stream->io->write(stream, out->bytes + stream->sent, out->length - stream->sent);
        stream->sent += n > 0 ? (size_t)n : 0;
        outcome = outcome_of(n);
    }
    if (stream->sent == out->length) {
        stream->sent = 0;
        wire_reset(out);
    } else if (stream->sent >= out->length - stream->sent) {
        /* Else it would grow as long as some of it always waits. */
        out->length -= stream->sent;
        memmove(out->bytes, out->bytes + stream->sent, out->length);
        stream->sent = 0;
    }
    return outcome;
}

enum stream_outcome stream_fill(struct stream *stream, size_t bytes)
{
    struct wire_writer *in = &stream->in;
    enum stream_outcome outcome = wire_reserve(in, bytes) ? STREAM_DONE : STREAM_NO_MEMORY;
    while (!outcome && in->length < bytes) {
        ssize_t n = stream->io->read(stream, in->bytes + in->length, bytes - in->length);
        in->length += n > 0 ? (size_t)n : 0;
        outcome = outcome_of(n);
    }
    return outcome;
}

enum stream_outcome stream_read(struct stream *stream, size_t limit, const uint8_t **frame, size_t *length)
{
    if (stream->returned)
        wire_reset(&stream->in);
    stream->returned = false;
    enum stream_outcome outcome = stream_fill(stream, STREAM_HEADER_BYTES);
    if (outcome)
        return outcome;
    struct wire_reader header = wire_reader_of(stream->in.bytes, STREAM_HEADER_BYTES);
    *length = wire_get_u32(&header);
    outcome = *length > limit ? STREAM_TOO_LONG : stream_fill(stream, STREAM_HEADER_BYTES + *length);
    *frame = stream->in.bytes + STREAM_HEADER_BYTES;
    stream->returned = outcome == STREAM_DONE || outcome == STREAM_TOO_LONG;
    return outcome;
}

short stream_events(const struct stream *stream)
{
    return stream->sent < stream->out.length ? POLLOUT : POLLIN;
}
