/* sockets.h - what the kernel knows of the TCP connections of processes. One thread.
 *
 * The kernel answers whoever may see the processes (sock_diag), in the network namespace of the caller, so
 * the processes spend nothing on it, and may be stopped. Volume does not show a slow link, since all links of
 * a ring carry the same; the time for which bytes waited to be sent or acknowledged does. */
#ifndef HVD_LAUNCH_SOCKETS_H
#define HVD_LAUNCH_SOCKETS_H

#include "base/wire.h"
#include "horovod.h"

#include <stdbool.h>
#include <stdint.h>

/* One end: an address, that of IPv4 as ::ffff:a.b.c.d, and a port. */
struct socket_end {
    uint8_t address[16];
    uint16_t port;
};

/* One connection, as seen from the end that sends. Times are in ns. */
struct socket_view {
    struct socket_end local, remote;
    uint64_t bytes;            /* acknowledged by the other end */
    uint64_t busy;             /* bytes waited to be sent, or to be acknowledged */
    uint64_t receiver_limited; /* of that: the receiver had no room for them */
    uint64_t retransmitted;    /* segments */
};

struct sockets {
    struct socket_view *list;
    int count, capacity;
};

/* Reads the established connections of each of these processes of this user; the caller frees each of
 * `sockets`, [count], unless this fails. */
hvd_code sockets_read(const int *processes, int count, struct sockets *sockets, hvd_status *status);
void sockets_free(struct sockets *sockets); /* zeroed memory is fine */

#define SOCKETS_LIMIT 1024 /* that are sent of a process: a message has at most 256 KiB */

void sockets_put(const struct sockets *sockets, struct wire_writer *body);
/* Returns false if it is malformed, or memory is out. The caller frees the sockets, also after a failure. */
bool sockets_get(struct sockets *sockets, struct wire_reader *body);

#endif
