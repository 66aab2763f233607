/* socket.c - see socket.h. No state; any thread. */
#include "base/socket.h"

#include "base/clock.h"
#include "base/status.h"

#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
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

/* A descriptor, or -1 with errno. */
static int listen_on(const struct addrinfo *address)
{
    int off = 0;
    int fd = socket(address->ai_family, SOCK_FLAGS, 0);
    if (fd < 0)
        return -1;
    /* The system's default may be another: "::" shall take IPv4 as well. */
    if (address->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int port_of(const struct sockaddr_storage *address)
{
    struct sockaddr_in either; /* the port lies at the same place in both families */
    memcpy(&either, address, sizeof either);
    return ntohs(either.sin_port);
}

static int find_numeric(const char *address, const char *port, struct addrinfo **found)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    return getaddrinfo(address, port, &hints, found);
}

hvd_code socket_listen(const char *address, int *fd, int *port, hvd_status *status)
{
    /* "::" takes IPv4 as well; where the kernel has no IPv6, "0.0.0.0" remains. */
    const char *const everywhere[] = {"::", "0.0.0.0", NULL};
    const char *const one[] = {address, NULL};
    int listener = -1, error = 0;
    for (const char *const *at = address ? one : everywhere; *at && listener < 0; at++) {
        struct addrinfo *found;
        int fault = find_numeric(*at, "0", &found);
        if (fault)
            return status_set(status, HVD_INVALID_ARGUMENT, "can't listen on '%s': %s", *at,
                              gai_strerror(fault));
        listener = listen_on(found);
        error = errno;
        freeaddrinfo(found);
    }
    if (listener < 0)
        return status_set_errno(status, error, "can't listen on %s", address ? address : "any interface");
    struct sockaddr_storage bound = {0};
    socklen_t length = sizeof bound;
    getsockname(listener, (struct sockaddr *)&bound, &length);
    *port = port_of(&bound);
    *fd = listener;
    return HVD_OK;
}

int socket_accept(int listener)
{
    return accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

/* ---- connecting -------------------------------------------------------------------------------------- */

/* Splits at the last colon; brackets around an IPv6 address go. */
static bool split(const char *address, char *host, size_t capacity, const char **port)
{
    const char *colon = strrchr(address, ':');
    if (!colon || colon == address || !colon[1])
        return false;
    size_t length = (size_t)(colon - address);
    if (address[0] == '[') {
        if (length < 3 || colon[-1] != ']')
            return false;
        address++;
        length -= 2;
    }
    if (length >= capacity)
        return false;
    memcpy(host, address, length);
    host[length] = '\0';
    *port = colon + 1;
    return true;
}

hvd_code socket_resolve(const char *address, struct addrinfo **found, hvd_status *status)
{
    char host[256];
    const char *port;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    if (!split(address, host, sizeof host, &port))
        return status_set(status, HVD_INVALID_ARGUMENT, "'%s' is no address; write host:port or [::1]:port",
                          address);
    int fault = getaddrinfo(host, port, &hints, found);
    if (fault)
        return status_set(status, HVD_INVALID_ARGUMENT, "the address of '%s' can't be found: %s", address,
                          gai_strerror(fault));
    return HVD_OK;
}

int socket_connect(const struct addrinfo *address)
{
    int fd = socket(address->ai_family, SOCK_FLAGS, 0);
    if (fd < 0)
        return -1;
    /* An interrupted connect goes on by itself, as one in progress does; socket_error returns how it ended.
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
    char service[16];
    struct addrinfo *found;
    snprintf(service, sizeof service, "%d", port);
    if (find_numeric(address, service, &found)) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
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

static bool host_text(const struct sockaddr *address, socklen_t length, char text[SOCKET_TEXT])
{
    return getnameinfo(address, length, text, SOCKET_TEXT, NULL, 0, NI_NUMERICHOST) == 0;
}

const char *socket_peer_text(int fd, char text[SOCKET_TEXT])
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    char host[SOCKET_TEXT];
    if (getpeername(fd, (struct sockaddr *)&address, &length) ||
        (address.ss_family != AF_INET && address.ss_family != AF_INET6) ||
        !host_text((struct sockaddr *)&address, length, host)) {
        snprintf(text, SOCKET_TEXT, "an unknown address");
        return text;
    }
    snprintf(text, SOCKET_TEXT, address.ss_family == AF_INET6 ? "[%.60s]:%d" : "%.60s:%d", host,
             port_of(&address));
    return text;
}

bool socket_local_address(int fd, char text[SOCKET_TEXT])
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    return getsockname(fd, (struct sockaddr *)&address, &length) == 0 &&
           host_text((struct sockaddr *)&address, length, text);
}

static bool address_of_family(const struct ifaddrs *at, const char *interface, size_t length, int family,
                              char text[SOCKET_TEXT])
{
    socklen_t bytes = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    for (; at; at = at->ifa_next) {
        if (at->ifa_addr && at->ifa_addr->sa_family == family &&
            strncmp(at->ifa_name, interface, length) == 0 && !at->ifa_name[length])
            return host_text(at->ifa_addr, bytes, text);
    }
    return false;
}

hvd_code socket_interface_address(const char *interfaces, char text[SOCKET_TEXT], hvd_status *status)
{
    struct ifaddrs *all;
    bool found = false;
    if (getifaddrs(&all))
        return status_set_errno(status, errno, "can't list the network interfaces");
    for (const char *name = interfaces; !found && *name; name += *name == ',') {
        size_t length = strcspn(name, ",");
        found = address_of_family(all, name, length, AF_INET, text) ||
                address_of_family(all, name, length, AF_INET6, text);
        name += length;
    }
    freeifaddrs(all);
    if (!found)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "network interface '%s' does not exist here or has no address; `ip address` lists "
                          "what there is (HOROVOD_NETWORK_INTERFACE)",
                          interfaces);
    return HVD_OK;
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

/* ---- stream ---------------------------------------------------------------------------------------- */

static ssize_t socket_read(struct stream *stream, void *bytes, size_t length)
{
    return recv(stream->fd, bytes, length, 0);
}

static ssize_t socket_write(struct stream *stream, const void *bytes, size_t length)
{
    return send(stream->fd, bytes, length, MSG_NOSIGNAL);
}

const struct stream_io stream_socket = {socket_read, socket_write};

void stream_free(struct stream *stream)
{
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
