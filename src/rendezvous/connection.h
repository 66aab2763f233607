/* connection.h - one client's connection at the server: handshake, then question and answer. Never blocks. */
#ifndef HVD_RENDEZVOUS_CONNECTION_H
#define HVD_RENDEZVOUS_CONNECTION_H

#include "rendezvous/handshake.h"
#include "rendezvous/protocol.h"
#include "rendezvous/store.h"

struct connection {
    int fd;
    int64_t since; /* accepted at */
    bool proven;
    bool waiting; /* for a key that is not there yet */
    struct handshake handshake;
    struct question question; /* the one waited for */
    struct wire_writer in, out;
    size_t sent; /* of out */
};

/* Takes over the descriptor; NULL when memory is out. `secret` is not copied. */
struct connection *connection_create(int fd, const char *secret);
void connection_free(struct connection *connection);

/* What to poll for. */
short connection_events(const struct connection *connection);

/* Goes on as far as possible without blocking. HVD_OK: alive; anything else: close it, and where the text is
 * not empty, say it. *put becomes true when a key was stored: see connection_retry. */
hvd_code connection_advance(struct connection *connection, struct store *store, bool *put,
                            hvd_status *status);

/* Answers the question it waits with, if the store can by now. */
void connection_retry(struct connection *connection, const struct store *store);

#endif
