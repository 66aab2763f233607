/* find_server.h - connects to a server by one of several addresses, and authenticates the connection both
 * ways. Blocks; any thread. */
#ifndef HVD_NET_FIND_SERVER_H
#define HVD_NET_FIND_SERVER_H

#include "base/clock.h"
#include "net/handshake.h"

struct server {
    const char *addresses; /* "host:port" (also "[::1]:port"), or several, separated by commas */
    const char *secret;
    const char *who; /* the server, for texts */
    const struct handshake_claim *claim;
    int64_t deadline;
    const struct interrupt *interrupt; /* ends the wait; NULL: never */
};

/* All addresses of these names are tried in turn and concurrently, and again, until the first completes the
 * handshake or the deadline passes; unknown names are looked up again. The caller takes ownership of the
 * socket, and of `tls` of an encrypted connection. */
hvd_code find_server(const struct server *server, int *fd, struct tls **tls, hvd_status *status);

#endif
