/* connection.h - the server's side of the key-value store: the store, and one client's connection (handshake,
 * then question and answer), which never blocks. The server's thread only. */
#ifndef HVD_RENDEZVOUS_CONNECTION_H
#define HVD_RENDEZVOUS_CONNECTION_H

#include "base/map.h"
#include "rendezvous/handshake.h"
#include "rendezvous/protocol.h"

/* ---- keys and values, which belong to an epoch of a job; bounded ----------------------------------------
 */

#define STORE_JOB_LIMIT   ((size_t)1 << 16)
#define STORE_ENTRY_LIMIT ((size_t)1 << 20)
#define STORE_BYTES_LIMIT ((size_t)256 << 20)

/* The newest epoch of a job. When all its ranks have come and gone, values and joins are dropped; when a
 * newer one begins, the table, too. */
struct epoch {
    uint32_t number;
    uint32_t size, members; /* ranks; connections of ranks that have joined */
    uint32_t first, next;   /* generations: of who comes first; after the highest yet, of all epochs */
    struct map table;       /* the starter's keys */
    struct map values;      /* those of the ranks */
    struct map joins;       /* by rank: how often it has come */
    char job[RENDEZVOUS_KEY_LIMIT];
};

struct store { /* zeroed memory is a valid empty store */
    struct map jobs;
    size_t bytes, entries;
};

struct store_value {
    const uint8_t *bytes;
    uint32_t length;
};

void store_free(struct store *store);
/* The newest epoch of the job. NULL when the store is full or memory is out. Stays until store_free. */
struct epoch *store_epoch(struct store *store, const char *job);
/* If this is a newer epoch it takes the older one's place, of which nothing stays; else false. */
bool store_begin(struct store *store, struct epoch *epoch, uint32_t number);
/* Adds to one of an epoch's maps, or replaces; false when the store is full or memory is out. */
bool store_put(struct store *store, struct map *map, const char *key, const void *value, uint32_t length);
/* False when the key is not there. */
bool store_get(const struct epoch *epoch, const char *key, struct store_value *value);
/* As rendezvous_enter says; false when the store is full or memory is out. */
bool store_join(struct store *store, struct epoch *epoch, uint32_t rank, uint32_t size, uint32_t *generation);
void store_leave(struct store *store, struct epoch *epoch);

/* ---- connections --------------------------------------------------------------------------------------- */

struct connection {
    struct stream stream;
    int64_t since; /* accepted at */
    bool proven;
    bool waiting;        /* for a key that is not there yet */
    struct epoch *epoch; /* the newest of the job that it has entered; NULL before */
    uint32_t number;     /* of the epoch that it has entered */
    bool ranked, member; /* as a rank; counted in epoch->members */
    struct handshake handshake;
    struct question question; /* the one waited for */
};

/* Takes over the descriptor; NULL when memory is out. `secret` is not copied. */
struct connection *connection_create(int fd, const char *secret);
void connection_free(struct connection *connection, struct store *store);

/* What to poll for. */
short connection_events(const struct connection *connection);

/* Goes on as far as possible without blocking. HVD_OK: alive; anything else: close it, and where the text is
 * not empty, say it. *changed becomes true when a key was stored or an epoch began: see connection_retry. */
hvd_code connection_advance(struct connection *connection, struct store *store, bool *changed,
                            hvd_status *status);

/* Answers the question it waits with, if the store can by now. */
void connection_retry(struct connection *connection);

#endif
