/* connection.c - see connection.h. */
#include "rendezvous/connection.h"

#include "base/clock.h"
#include "base/socket.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* ---- the store ----------------------------------------------------------------------------------------- */

struct entry {
    size_t key_length;
    uint32_t length; /* of the value */
    uint32_t joins;  /* in the map of joins: how many there were */
    uint8_t bytes[]; /* key, value */
};

static void free_all(struct map *map)
{
    size_t cursor = 0;
    void *entry;
    while ((entry = map_next(map, &cursor)))
        free(entry);
    map_free(map);
}

void store_free(struct store *store)
{
    free_all(&store->values);
    free_all(&store->joins);
    store->bytes = 0;
}

static size_t size_of(const struct entry *entry)
{
    return sizeof *entry + entry->key_length + entry->length;
}

/* A new entry in place of the one that is there; NULL when the store is full. */
static struct entry *replace(struct store *store, struct map *map, const void *key, size_t key_length,
                             uint32_t length)
{
    struct entry *old = map_get(map, key, key_length);
    size_t before = old ? size_of(old) : 0;
    struct entry *entry = malloc(sizeof *entry + key_length + length);
    if (!entry)
        return NULL;
    *entry = (struct entry){.key_length = key_length, .length = length};
    memcpy(entry->bytes, key, key_length);
    size_t bytes = store->bytes - before + size_of(entry);
    bool full = bytes > STORE_BYTES_LIMIT || (!old && map->count >= STORE_ENTRY_LIMIT);
    /* The map has room for the new entry then (it never shrinks to the brim), so the old one is not lost. */
    if (!full && old)
        map_remove(map, key, key_length);
    if (full || !map_put(map, entry->bytes, key_length, entry)) {
        free(entry);
        return NULL;
    }
    free(old);
    store->bytes = bytes;
    return entry;
}

bool store_put(struct store *store, const char *key, const void *value, uint32_t length)
{
    struct entry *entry = replace(store, &store->values, key, strlen(key), length);
    if (entry && length)
        memcpy(entry->bytes + entry->key_length, value, length);
    return entry;
}

bool store_get(const struct store *store, const char *key, struct store_value *value)
{
    const struct entry *entry = map_get(&store->values, key, strlen(key));
    if (entry)
        *value = (struct store_value){entry->bytes + entry->key_length, entry->length};
    return entry;
}

bool store_join(struct store *store, const char *job, uint32_t rank, uint32_t *before)
{
    /* Rank, then the job's name, which is shorter than RENDEZVOUS_KEY_LIMIT. */
    uint8_t key[sizeof rank + 256];
    size_t length = strnlen(job, sizeof key - sizeof rank);
    memcpy(key, &rank, sizeof rank);
    memcpy(key + sizeof rank, job, length);
    struct entry *entry = map_get(&store->joins, key, length + sizeof rank);
    if (!entry)
        entry = replace(store, &store->joins, key, length + sizeof rank, 0);
    if (!entry)
        return false;
    *before = entry->joins++;
    return true;
}

/* ---- connections --------------------------------------------------------------------------------------- */

struct connection *connection_create(int fd, const char *secret)
{
    char who[SOCKET_TEXT];
    struct handshake_claim expected = {.role = HANDSHAKE_RENDEZVOUS};
    struct connection *connection = calloc(1, sizeof *connection);
    if (!connection)
        return NULL;
    connection->stream = (struct stream){.io = &stream_socket, .fd = fd};
    connection->since = clock_now();
    handshake_accept(&connection->handshake, secret, &expected, socket_peer_text(fd, who));
    return connection;
}

void connection_free(struct connection *connection)
{
    socket_close(&connection->stream.fd);
    stream_free(&connection->stream);
    free(connection);
}

/* While an answer has not gone out nothing more is read: a client that does not listen costs one answer. */
short connection_events(const struct connection *connection)
{
    /* Also while a get waits: its client may withdraw it by the next question, or end. */
    return stream_events(connection->proven ? &connection->stream : &connection->handshake.stream);
}

static void put_answer(struct connection *connection, enum outcome outcome, const void *value,
                       uint32_t length)
{
    struct answer answer = {connection->question.id, outcome, value, length};
    answer_encode(&connection->stream.out, &answer);
    connection->waiting = false;
}

static void answer_join(struct connection *connection, struct store *store)
{
    uint32_t generation;
    const struct question *question = &connection->question;
    if (!store_join(store, question->key, question->rank, &generation)) {
        put_answer(connection, OUTCOME_FULL, NULL, 0);
        return;
    }
    uint8_t bytes[4] = {(uint8_t)generation, (uint8_t)(generation >> 8), (uint8_t)(generation >> 16),
                        (uint8_t)(generation >> 24)};
    put_answer(connection, OUTCOME_DONE, bytes, sizeof bytes);
}

void connection_retry(struct connection *connection, const struct store *store)
{
    struct store_value value;
    if (connection->waiting && store_get(store, connection->question.key, &value))
        put_answer(connection, OUTCOME_DONE, value.bytes, value.length);
}

static void answer(struct connection *connection, struct store *store, bool *put)
{
    const struct question *question = &connection->question;
    bool stored;
    switch (question->kind) {
    case QUESTION_JOIN:
        answer_join(connection, store);
        break;
    case QUESTION_PUT:
        stored = store_put(store, question->key, question->value, question->length);
        put_answer(connection, stored ? OUTCOME_DONE : OUTCOME_FULL, NULL, 0);
        *put |= stored;
        break;
    case QUESTION_GET:
        connection->waiting = true;
        connection_retry(connection, store);
        if (connection->waiting && !question->wait)
            put_answer(connection, OUTCOME_ABSENT, NULL, 0);
        break;
    }
}

/* Sends what answers the last question, then reads. A value to be stored points into the stream, which keeps
 * it until the next question is read: answer() is called before. */
static hvd_code next_question(struct connection *connection, hvd_status *status)
{
    struct stream *stream = &connection->stream;
    const char *who = connection->handshake.who;
    const uint8_t *body;
    size_t length;
    if (stream->out.failed)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for an answer to %s", who);
    enum stream_outcome outcome = stream_write(stream);
    if (!outcome)
        outcome = stream_read(stream, PROTOCOL_FRAME_LIMIT, &body, &length);
    if (outcome == STREAM_AGAIN)
        return HVD_IN_PROGRESS;
    if (outcome == STREAM_ENDED || outcome == STREAM_FAILED) /* of a client that is done: no fault, no text */
        return status_set(status, HVD_PEER_LOST, "%s", "");
    if (outcome == STREAM_NO_MEMORY)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for a question of %s", who);
    if (outcome || !question_decode(&connection->question, body, length))
        return status_set(status, HVD_REFUSED, "%s sent a malformed question", who);
    return HVD_OK;
}

hvd_code connection_advance(struct connection *connection, struct store *store, bool *put, hvd_status *status)
{
    hvd_code code = HVD_OK;
    if (!connection->proven) {
        code = handshake_advance(&connection->handshake, connection->stream.fd, status);
        connection->proven = code == HVD_OK;
    }
    while (!code) {
        code = next_question(connection, status);
        if (!code)
            answer(connection, store, put);
    }
    return code == HVD_IN_PROGRESS ? HVD_OK : code;
}
