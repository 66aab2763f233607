/* connection.c - answers the requests of one client, and keeps those that wait for a key until it is stored.
 * The server's thread only; nothing blocks. */
#include "rendezvous/connection.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

struct connection *connection_create(int fd, const char *secret)
{
    char who[SOCKET_TEXT];
    struct handshake_claim expected = {.role = HANDSHAKE_RENDEZVOUS};
    struct connection *connection = calloc(1, sizeof *connection);
    if (!connection)
        return NULL;
    connection->stream = (struct stream){.io = &stream_socket, .fd = fd};
    handshake_accept(&connection->handshake, secret, &expected, socket_peer_text(fd, who));
    return connection;
}

static bool is_over(const struct connection *connection)
{
    return !connection->epoch || connection->number < connection->epoch->number;
}

/* Into a ring, by its first and oldest one; NULL: empty. */
static void link_waiting(struct connection **first, struct connection *connection)
{
    struct connection *next = *first ? *first : connection;
    struct connection *last = *first ? next->previous : connection;
    connection->next = next;
    connection->previous = last;
    next->previous = last->next = connection;
    *first = next;
}

static void unlink_waiting(struct connection **first, struct connection *connection)
{
    struct connection *next = connection->next;
    connection->previous->next = next;
    next->previous = connection->previous;
    if (*first == connection)
        *first = next == connection ? NULL : next;
}

/* False when memory is out. */
static bool start_waiting(struct connection *connection)
{
    const char *key = connection->question.key;
    if (connection->question.kind == QUESTION_WATCH) {
        link_waiting(&connection->epoch->watching, connection);
        return connection->waiting = true;
    }
    void **place = map_place(&connection->epoch->waiting, key, strlen(key), connection);
    struct connection *first = place && *place != connection ? *place : NULL;
    if (place)
        link_waiting(&first, connection);
    return connection->waiting = place;
}

/* The next one's key takes the place of its own in the map. */
static void stop_waiting(struct connection *connection)
{
    const char *key = connection->question.key;
    if (!connection->waiting)
        return;
    connection->waiting = false;
    if (connection->question.kind == QUESTION_WATCH) {
        unlink_waiting(&connection->epoch->watching, connection);
        return;
    }
    struct connection *first = map_remove(&connection->epoch->waiting, key, strlen(key));
    unlink_waiting(&first, connection);
    if (first)
        map_put(&connection->epoch->waiting, first->question.key, strlen(key), first);
}

static void leave(struct connection *connection, struct store *store)
{
    if (connection->member && !is_over(connection))
        store_leave(store, connection->epoch);
    connection->member = false;
}

void connection_free(struct connection *connection, struct store *store)
{
    stop_waiting(connection);
    leave(connection, store);
    socket_close(&connection->stream.fd);
    handshake_end(&connection->handshake);
    stream_free(&connection->stream);
    free(connection);
}

static void put_answer(struct connection *connection, enum outcome outcome, const void *value,
                       uint32_t length)
{
    struct answer answer = {connection->question.id, outcome, value, length};
    answer_encode(&connection->stream.out, &answer);
}

static void put_number(struct connection *connection, enum outcome outcome, uint32_t number)
{
    uint8_t bytes[4] = {(uint8_t)number, (uint8_t)(number >> 8), (uint8_t)(number >> 16),
                        (uint8_t)(number >> 24)};
    put_answer(connection, outcome, bytes, sizeof bytes);
}

static void put_over(struct connection *connection)
{
    put_number(connection, OUTCOME_OVER, connection->epoch ? connection->epoch->number : 0);
}

static void answer_get(struct connection *connection, struct store *store)
{
    struct store_value value;
    store->visits++;
    connection->waiting = false;
    if (is_over(connection))
        put_over(connection);
    else if (connection->number == connection->epoch->number &&
             store_get(connection->epoch, connection->question.key, &value))
        put_answer(connection, OUTCOME_DONE, value.bytes, value.length);
    else if (!connection->question.wait)
        put_answer(connection, OUTCOME_ABSENT, NULL, 0);
    else if (!start_waiting(connection))
        put_answer(connection, OUTCOME_FULL, NULL, 0);
}

static void put_entry(struct connection *connection, const struct store_value *value)
{
    struct wire_writer body = {0};
    wire_put_u64(&body, value->number);
    wire_put_blob(&body, value->key, value->key_length);
    wire_put_blob(&body, value->bytes, value->length);
    if (body.failed)
        put_answer(connection, OUTCOME_FULL, NULL, 0);
    else
        put_answer(connection, OUTCOME_DONE, body.bytes, (uint32_t)body.length);
    wire_writer_free(&body);
}

static void answer_watch(struct connection *connection, struct store *store)
{
    const struct question *question = &connection->question;
    struct store_value value;
    store->visits++;
    connection->waiting = false;
    if (is_over(connection))
        put_over(connection);
    else if (connection->number == connection->epoch->number &&
             store_next(connection->epoch, question->key, question->after, &value))
        put_entry(connection, &value);
    else
        start_waiting(connection);
}

/* Answers those that watch for a key which was just put: each has seen all before it. */
static void answer_watching(struct epoch *epoch, const char *key, struct store *store)
{
    struct connection *next = epoch->watching, *last = next ? next->previous : NULL, *each = NULL;
    struct store_value value = {0};
    store_get_lasting(epoch, key, &value);
    epoch->watching = NULL;
    while (each != last) {
        each = next;
        next = each->next;
        if (each->number != epoch->number ||
            strncmp(key, each->question.key, strlen(each->question.key)) != 0) {
            link_waiting(&epoch->watching, each);
            continue;
        }
        store->visits++;
        each->waiting = false;
        put_entry(each, &value);
        stream_write(&each->stream);
    }
}

/* The ring is no longer in a map. A write that fails is also an event of the socket, where it is noticed. */
static void answer_ring(struct connection *first, struct store *store)
{
    struct connection *last = first->previous, *each, *next = first;
    do {
        each = next;
        next = each->next;
        if (each->question.kind == QUESTION_WATCH)
            answer_watch(each, store);
        else
            answer_get(each, store);
        stream_write(&each->stream);
    } while (each != last);
}

static void begin(struct store *store, struct epoch *epoch, uint32_t number)
{
    struct map waiting = epoch->waiting;
    struct connection *first;
    size_t cursor = 0;
    if (!store_begin(store, epoch, number))
        return;
    epoch->waiting = (struct map){0}; /* some wait on, for an epoch that is newer still */
    first = epoch->watching;
    epoch->watching = NULL;
    if (first)
        answer_ring(first, store);
    while ((first = map_next(&waiting, &cursor)))
        answer_ring(first, store);
    map_free(&waiting);
}

static void answer_enter(struct connection *connection, struct store *store)
{
    const struct question *question = &connection->question;
    uint32_t generation = 0;
    leave(connection, store);
    connection->epoch = store_epoch(store, question->key);
    connection->number = question->epoch;
    connection->ranked = question->rank != QUESTION_NO_RANK;
    bool full = !connection->epoch;
    if (!full && is_over(connection)) {
        put_over(connection);
        return;
    }
    if (!full && question->size) {
        begin(store, connection->epoch, question->epoch);
        connection->member =
            store_join(store, connection->epoch, question->rank, question->size, &generation);
        full = !connection->member;
    }
    put_number(connection, full ? OUTCOME_FULL : OUTCOME_DONE, generation);
}

/* Answers the connections that wait for the key. Returns false if the store is full. */
static bool put(struct store *store, struct epoch *epoch, bool lasting, const char *key,
                const struct store_value *value)
{
    if (!store_put(store, lasting ? &epoch->table : &epoch->values, key, value->bytes, value->length))
        return false;
    struct connection *first = map_remove(&epoch->waiting, key, strlen(key));
    if (first)
        answer_ring(first, store);
    if (lasting)
        answer_watching(epoch, key, store);
    return true;
}

static void answer_put(struct connection *connection, struct store *store)
{
    const struct question *question = &connection->question;
    struct epoch *epoch = connection->epoch;
    if (is_over(connection)) {
        put_over(connection);
        return;
    }
    begin(store, epoch, connection->number);
    bool done = put(store, epoch, !connection->ranked || question->lasting, question->key,
                    &(struct store_value){.bytes = question->value, .length = question->length});
    put_answer(connection, done ? OUTCOME_DONE : OUTCOME_FULL, NULL, 0);
}

enum outcome connections_publish(struct store *store, const char *job, uint32_t number, const char *key,
                                 const struct store_value *value, uint32_t *newest)
{
    struct epoch *epoch = store_epoch(store, job);
    *newest = epoch ? epoch->number : 0;
    if (number < *newest)
        return OUTCOME_OVER;
    if (!epoch)
        return OUTCOME_FULL;
    begin(store, epoch, number);
    return put(store, epoch, true, key, value) ? OUTCOME_DONE : OUTCOME_FULL;
}

static void answer(struct connection *connection, struct store *store)
{
    switch (connection->question.kind) {
    case QUESTION_ENTER:
        answer_enter(connection, store);
        break;
    case QUESTION_PUT:
        answer_put(connection, store);
        break;
    case QUESTION_GET:
        answer_get(connection, store);
        break;
    case QUESTION_WATCH:
        answer_watch(connection, store);
        break;
    }
}

/* Sends what answers the last question, then reads: a client that does not read costs one answer. The next
 * question ends a get that waits. A value to be stored points into the stream, which keeps it until the next
 * question is read: answer() is called before. */
static hvd_code next_question(struct connection *connection, hvd_status *status)
{
    struct stream *stream = &connection->stream;
    const char *who = connection->handshake.who;
    const uint8_t *body;
    size_t length;
    if (stream->out.failed)
        return status_no_memory(status);
    enum stream_outcome outcome = stream_write(stream);
    if (!outcome)
        outcome = stream_read(stream, PROTOCOL_FRAME_LIMIT, &body, &length);
    if (outcome == STREAM_AGAIN)
        return HVD_IN_PROGRESS;
    if (outcome == STREAM_ENDED || outcome == STREAM_FAILED) /* of a client that is done: no fault, no text */
        return status_set(status, HVD_PEER_LOST, "%s", "");
    if (outcome == STREAM_NO_MEMORY)
        return status_no_memory(status);
    stop_waiting(connection);
    if (outcome || !question_decode(&connection->question, body, length))
        return status_set(status, HVD_REFUSED, "%s sent a malformed question", who);
    return HVD_OK;
}

hvd_code connection_advance(struct connection *connection, struct store *store, hvd_status *status)
{
    hvd_code code = HVD_OK;
    store->visits++;
    if (!connection->proven) {
        code = handshake_advance(&connection->handshake, connection->stream.fd, status);
        connection->proven = code == HVD_OK;
        if (connection->proven) {
            connection->stream.tls = connection->handshake.tls;
            connection->handshake.tls = NULL;
        }
        return code == HVD_IN_PROGRESS ? HVD_OK : code;
    }
    while (!code) {
        code = next_question(connection, status);
        if (!code)
            answer(connection, store);
    }
    return code == HVD_IN_PROGRESS ? HVD_OK : code;
}
