/* socket.h - TCP sockets, all non-blocking and closed on exec, their addresses as text, and framed streams
 * over them. Any thread; a stream or struct polled belongs to one thread at a time. */
#ifndef HVD_NET_SOCKET_H
#define HVD_NET_SOCKET_H

#include "base/wire.h"
#include "horovod.h"
#include "net/tls.h"

#include <netdb.h>
#include <stdbool.h>
#include <sys/types.h>

#define SOCKET_TEXT 80

/* Takes apart "host", "host:port", "fd00::1", "[fd00::1]" or "[fd00::1]:port"; *port points into it, "" when
 * there is none. False: malformed, or the host is too long. */
bool socket_split(const char *address, char *host, size_t capacity, const char **port);

/* Finds the addresses of "host:port" or "[::1]:port"; free them with freeaddrinfo. HVD_TIMED_OUT: the name
 * can't be resolved yet. */
hvd_code socket_resolve(const char *address, struct addrinfo **found, hvd_status *status);

/* These return a descriptor, or -1 with errno; a connection may still be on its way. */
int socket_listen(const char *address, int *port); /* numeric; port 0 becomes one that is free */
int socket_connect(const struct addrinfo *address);
int socket_connect_numeric(const char *address, int port);
int socket_accept(int listener);

/* Returns how many connections wait at a TCP listener to be accepted, and how many may. False: it is no such
 * listener. */
bool socket_backlog(int listener, unsigned *waiting, unsigned *limit);

int socket_error(int fd); /* how a connection came about: 0, or an errno value */
void socket_send_at_once(int fd);
const char *socket_peer_text(int fd, char text[SOCKET_TEXT]); /* "10.0.0.7:4242" */
bool socket_local_address(int fd, char text[SOCKET_TEXT]);    /* "10.0.0.7" */
bool socket_peer_address(int fd, char text[SOCKET_TEXT]);
/* The same of an address; NULL is fine. */
bool socket_host_text(const struct sockaddr *address, char text[SOCKET_TEXT]);

/* Milliseconds for poll(), rounded up; -1: forever. */
int socket_poll_timeout(int64_t deadline);
/* False when the deadline passed first. */
bool socket_wait(int fd, short events, int64_t deadline);

void socket_close(int *fd); /* sets it to -1; -1 is fine */

/* A descriptor that a poller may report. */
struct polled {
    int fd;       /* -1: none */
    int poller;   /* -1: none reports it */
    short events; /* POLLIN, POLLOUT */
};
#define POLLED_NONE ((struct polled){-1, -1, 0})

/* From here on the poller reports `tag` when one of the events is there. False: errno. Without a descriptor
 * it does nothing. */
bool polled_watch(struct polled *polled, int poller, short events, void *tag);
void polled_unwatch(struct polled *polled);
void polled_close(struct polled *polled);

/* ---- stream ----------------------------------------------------------------------------------------------
 * Framed messages over a socket or a link that never blocks: reads and writes continue where they
 * stopped. A frame is a length (u32), then that many bytes. One thread at a time. */

struct stream;

/* How bytes move. Both return what recv and send do: short counts are
 * fine, and -1 comes with errno, EAGAIN while nothing can move. A struct that begins with its stream has
 * more. */
struct stream_io {
    ssize_t (*read)(struct stream *stream, void *bytes, size_t length);
    ssize_t (*write)(struct stream *stream, const void *bytes, size_t length);
};

extern const struct stream_io stream_socket; /* the non-blocking socket `fd`, encrypted where `tls` is set */

struct stream {
    const struct stream_io *io;
    int fd;          /* not closed here */
    struct tls *tls; /* freed with the stream; NULL: plain */
    struct wire_writer in, out;
    size_t sent;   /* of `out` */
    bool returned; /* `in` is a frame that stream_read has returned */
};

enum stream_outcome {
    STREAM_DONE,
    STREAM_AGAIN,    /* to be called again after stream_events */
    STREAM_ENDED,    /* the other end has closed it, and all that it sent was read */
    STREAM_FAILED,   /* errno says why */
    STREAM_TOO_LONG, /* the frame's length is beyond the limit; the header is consumed, nothing else */
    STREAM_NO_MEMORY /* for incoming bytes; nothing is lost */
};

void stream_free(struct stream *stream); /* zeroed memory is a valid empty stream */

/* Writes all of `out`; may drop from it what has been written. */
enum stream_outcome stream_write(struct stream *stream);

/* Reads until `in` holds `bytes` bytes, and no further. */
enum stream_outcome stream_fill(struct stream *stream, size_t bytes);

/* Reads the next frame, which stays valid until the next call. */
enum stream_outcome stream_read(struct stream *stream, size_t limit, const uint8_t **frame, size_t *length);
#define STREAM_HEADER_BYTES sizeof(uint32_t)

/* Returns the events to poll for. */
short stream_events(const struct stream *stream);

#endif
