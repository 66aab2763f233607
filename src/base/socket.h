/* socket.h - TCP sockets, all non-blocking and closed on exec, and their addresses as text. */
#ifndef HVD_BASE_SOCKET_H
#define HVD_BASE_SOCKET_H

#include "horovod.h"

#include <netdb.h>
#include <stdbool.h>

#define SOCKET_TEXT 80

/* Listens on a numeric address (NULL: all interfaces) at a free port. */
hvd_code socket_listen(const char *address, int *fd, int *port, hvd_status *status);

/* Finds the addresses of "host:port" or "[::1]:port"; free them with freeaddrinfo. */
hvd_code socket_resolve(const char *address, struct addrinfo **found, hvd_status *status);

/* These three return a descriptor, or -1 with errno; a connection may still be on its way. */
int socket_connect(const struct addrinfo *address);
int socket_connect_numeric(const char *address, int port);
int socket_accept(int listener);

int socket_error(int fd); /* how a connection came about: 0, or an errno value */
void socket_send_at_once(int fd);
const char *socket_peer_text(int fd, char text[SOCKET_TEXT]); /* "10.0.0.7:4242" */
bool socket_local_address(int fd, char text[SOCKET_TEXT]);    /* "10.0.0.7" */

/* The numeric address of a network interface: of the first that has one in a list such as "eth0,ib0". */
hvd_code socket_interface_address(const char *interfaces, char text[SOCKET_TEXT], hvd_status *status);

/* Milliseconds for poll(), rounded up; -1: for ever. */
int socket_poll_timeout(int64_t deadline);
/* False when the deadline passed first. */
bool socket_wait(int fd, short events, int64_t deadline);

void socket_close(int *fd); /* -1 is fine, and what it becomes */

#endif
