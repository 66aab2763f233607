/* connection.h - inside the rendezvous: its protocol, and the connections of the server. */
#ifndef HVD_RENDEZVOUS_CONNECTION_H
#define HVD_RENDEZVOUS_CONNECTION_H

#include "base/map.h"
#include "base/socket.h"
#include "rendezvous/handshake.h"
#include "rendezvous/rendezvous.h"

/* ---- protocol --------------------------------------------------------------------------------------------
 * Requests of an authenticated client to the key-value store (questions) and their answers:
 * frames of a length and a body. A client has one question open at a time; the next one cancels it. */

#define PROTOCOL_FRAME_LIMIT (RENDEZVOUS_VALUE_LIMIT + RENDEZVOUS_KEY_LIMIT + 64)

enum question_kind { QUESTION_ENTER = 1, QUESTION_PUT, QUESTION_GET };

#define QUESTION_NO_RANK UINT32_MAX

struct question {
    uint32_t id; /* the answer carries it */
    enum question_kind kind;
    char key[RENDEZVOUS_KEY_LIMIT]; /* enter: the job */
    uint32_t epoch, rank, size;     /* enter: see rendezvous_enter */
    bool wait;                      /* get: answer once the key is there */
    const uint8_t *value;           /* put; into the frame */
    uint32_t length;
};

enum outcome { OUTCOME_DONE, OUTCOME_ABSENT, OUTCOME_FULL, OUTCOME_OVER };

struct answer {
    uint32_t id;
    enum outcome outcome;
    const uint8_t *value; /* enter: the generation; get: the value; over: the newest epoch; into the frame */
    uint32_t length;
};

/* Append a whole frame. */
void question_encode(struct wire_writer *frame, const struct question *question);
void answer_encode(struct wire_writer *frame, const struct answer *answer);

/* From a frame's body; false when it is malformed. */
bool question_decode(struct question *question, const uint8_t *body, size_t length);
bool answer_decode(struct answer *answer, const uint8_t *body, size_t length);

/* ---- connection ------------------------------------------------------------------------------------------
 * The server's side of the key-value store: the store, and one client's connection (handshake,
 * then question and answer), which never blocks. The server's thread only. */

/* ---- keys and values, which belong to an epoch of a job; bounded -------------------------------------- */

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
    struct map waiting;     /* by key: the first connection of those that wait for it */
    char job[RENDEZVOUS_KEY_LIMIT];
};

struct store { /* zeroed memory is a valid empty store */
    struct map jobs;
    size_t bytes, entries;
    size_t visits; /* of connections, to advance or to answer them: what the server's work grows with */
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
    bool waiting;                       /* for a key that is not there yet */
    int index;                          /* the server's: in its list */
    struct connection *next, *previous; /* one ring: of those without proof, or that wait for the same key */
    struct epoch *epoch;                /* the newest of the job that it has entered; NULL before */
    uint32_t number;                    /* of the epoch that it has entered */
    bool ranked, member;                /* as a rank; counted in epoch->members */
    struct handshake handshake;
    struct question question; /* the one waited for */
};

/* Takes over the descriptor; NULL when memory is out. `secret` is not copied. */
struct connection *connection_create(int fd, const char *secret);
void connection_free(struct connection *connection, struct store *store);

/* Goes on until the socket has no more to read, or room to write, or the handshake ends, behind which comes
 * another call. Answers those that wait for what it stores. HVD_OK: alive; anything else: close it, and where
 * the text is not empty, say it. */
hvd_code connection_advance(struct connection *connection, struct store *store, hvd_status *status);

/* A ring, by its first and oldest one; NULL: empty. */
void connection_link(struct connection **first, struct connection *connection);
void connection_unlink(struct connection **first, struct connection *connection);

#endif
