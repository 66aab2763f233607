/* connection.h - the server's side of the key-value store: the store, and one client's connection (handshake,
 * then question and answer), which never blocks. The server's thread only. */
#ifndef HVD_RENDEZVOUS_CONNECTION_H
#define HVD_RENDEZVOUS_CONNECTION_H

#include "base/map.h"
#include "rendezvous/handshake.h"
#include "rendezvous/protocol.h"

/* ---- keys and values, and how often each rank has joined a job; bounded -------------------------------- */

#define STORE_ENTRY_LIMIT ((size_t)1 << 20)
#define STORE_BYTES_LIMIT ((size_t)256 << 20)

struct store { /* zeroed memory is a valid empty store */
    struct map values, joins;
    size_t bytes;
};

struct store_value {
    const uint8_t *bytes;
    uint32_t length;
};

void store_free(struct store *store);
/* Adds or replaces; false when the store is full or memory is out. */
bool store_put(struct store *store, const char *key, const void *value, uint32_t length);
/* False when the key is not there. */
bool store_get(const struct store *store, const char *key, struct store_value *value);
/* How often this pair was seen before; false when the store is full or memory is out. */
bool store_join(struct store *store, const char *job, uint32_t rank, uint32_t *before);

/* ---- connections --------------------------------------------------------------------------------------- */

struct connection {
    struct stream stream;
    int64_t since; /* accepted at */
    bool proven;
    bool waiting; /* for a key that is not there yet */
    struct handshake handshake;
    struct question question; /* the one waited for */
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
