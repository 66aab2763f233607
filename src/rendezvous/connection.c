/* connection.c - answers the requests of one client, and keeps those that wait for a key until it is stored.
 * Under the server's lock; nothing blocks. */
#include "rendezvous/connection.h"

#include "base/platform_poller.h"
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

/* Appends the connection to the ring of those that wait for its key. The map has the first and oldest one.
 * Returns false if memory is out. */
static bool start_waiting(struct connection *connection)
{
    const char *key = connection->question.key;
    void **place = map_place(&connection->epoch->waiting, key, strlen(key), connection);
    if (!place)
        return false;
    struct connection *first = *place;
    struct connection *last = first == connection ? connection : first->previous;
    connection->next = first;
    connection->previous = last;
    first->previous = last->next = connection;
    return connection->waiting = true;
}

static void stop_waiting(struct connection *connection)
{
    struct connection *next = connection->next;
    const char *key = connection->question.key;
    if (!connection->waiting)
        return;
    connection->waiting = false;
    connection->previous->next = next;
    next->previous = connection->previous;
    /* The key in the map is that of the ring's first connection, so the next one replaces it. */
    struct connection *first = map_remove(&connection->epoch->waiting, key, strlen(key));
    if (first == connection)
        first = next == connection ? NULL : next;
    if (first)
        map_put(&connection->epoch->waiting, first->question.key, strlen(key), first);
}

static void leave(struct connection *connection, struct store *store)
{
    if (connection->member && !is_over(connection))
        store_leave(store, connection->epoch);
    connection->member = false;
}

/* `value`: of the key; NULL: none. */
static void put_answer(struct connection *connection, enum outcome outcome, const struct store_value *value)
{
    bool follows = value && connection->question.kind == QUESTION_FOLLOW;
    struct answer answer = {.id = connection->question.id,
                            .outcome = outcome,
                            .number = follows ? (uint32_t)value->number : connection->generation,
                            .value = value ? value->bytes : NULL,
                            .length = value ? value->length : 0};
    answer_encode(&connection->stream.out, &answer);
}

static void put_over(struct connection *connection)
{
    struct answer answer = {.id = connection->question.id,
                            .outcome = OUTCOME_OVER,
                            .number = connection->epoch ? connection->epoch->number : 0};
    answer_encode(&connection->stream.out, &answer);
}

/* Returns false if the client follows the key and has seen this value. */
static bool is_fresh(const struct connection *connection, const struct store_value *value)
{
    return connection->question.kind != QUESTION_FOLLOW ||
           (uint32_t)value->number != connection->question.seen;
}

static void answer_get(struct connection *connection, struct store *store)
{
    struct store_value value;
    store->visits++;
    connection->waiting = false;
    if (is_over(connection))
        put_over(connection);
    else if (connection->number == connection->epoch->number &&
             store_get(connection->epoch, connection->question.key, &value) && is_fresh(connection, &value))
        put_answer(connection, OUTCOME_DONE, &value);
    else if (!connection->question.wait)
        put_answer(connection, OUTCOME_ABSENT, NULL);
    else if (!start_waiting(connection))
        put_answer(connection, OUTCOME_FULL, NULL);
}

/* The ring is no longer in a map. A write that fails is also an event of the socket, which the server
 * handles. */
static void answer_ring(struct connection *first, struct store *store)
{
    struct connection *last = first->previous, *each, *next = first;
    do {
        each = next;
        next = each->next;
        answer_get(each, store);
        stream_write(&each->stream);
    } while (each != last);
}

/* `key` was put; NULL: a newer epoch has begun. */
static void wake_watchers(const struct epoch *epoch, const char *key)
{
    for (const struct watcher *each = epoch->watchers; each; each = each->next)
        if (!key || (each->number == epoch->number && !strncmp(key, each->prefix, strlen(each->prefix))))
            platform_event_set(each->event);
}

static void begin(struct store *store, struct epoch *epoch, uint32_t number)
{
    struct map waiting = epoch->waiting;
    struct connection *first;
    size_t cursor = 0;
    if (!store_begin(store, epoch, number))
        return;
    epoch->waiting = (struct map){0}; /* those of an even newer epoch wait again */
    while ((first = map_next(&waiting, &cursor)))
        answer_ring(first, store);
    map_free(&waiting);
    wake_watchers(epoch, NULL);
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
        wake_watchers(epoch, key);
    return true;
}

/* The key stays if another connection has put it since. */
static void empty_bound(struct connection *connection, struct store *store)
{
    struct store_value value;
    if (connection->bound && !is_over(connection) &&
        store_get(connection->epoch, connection->bound, &value) && value.number == connection->bound_number)
        put(store, connection->epoch, true, connection->bound, &(struct store_value){.length = 0});
    free(connection->bound);
    connection->bound = NULL;
}

void connection_free(struct connection *connection, struct store *store)
{
    stop_waiting(connection);
    empty_bound(connection, store);
    leave(connection, store);
    socket_close(&connection->stream.fd);
    handshake_end(&connection->handshake);
    stream_free(&connection->stream);
    free(connection);
}

static void answer_enter(struct connection *connection, struct store *store)
{
    const struct question *question = &connection->question;
    empty_bound(connection, store);
    leave(connection, store);
    connection->epoch = store_epoch(store, question->job);
    connection->generation = 0;
    connection->number = question->epoch;
    bool full = !connection->epoch;
    if (!full && is_over(connection)) {
        put_over(connection);
        return;
    }
    if (!full && question->size) {
        begin(store, connection->epoch, question->epoch);
        connection->member =
            store_join(store, connection->epoch, question->rank, question->size, &connection->generation);
        full = !connection->member;
    }
    if (full || !*question->key)
        put_answer(connection, full ? OUTCOME_FULL : OUTCOME_DONE, NULL);
    else
        answer_get(connection, store);
}

static bool bind_key(struct connection *connection)
{
    free(connection->bound);
    connection->bound_number = 0;
    connection->bound = strdup(connection->question.key);
    return connection->bound;
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
    bool done = (question->lifetime != LIFETIME_CONNECTION || bind_key(connection)) &&
                put(store, epoch, question->lifetime != LIFETIME_RANKS, question->key,
                    &(struct store_value){.bytes = question->value, .length = question->length});
    if (done && question->lifetime == LIFETIME_CONNECTION)
        connection->bound_number = store->puts;
    put_answer(connection, done ? OUTCOME_DONE : OUTCOME_FULL, NULL);
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
    case QUESTION_FOLLOW:
        answer_get(connection, store);
        break;
    }
}

/* Sends the answer to the last question before it reads, so that a client that does not read costs one
 * answer. The next question ends a get that waits. A value to be stored points into the stream, which keeps
 * it until the next question is read: answer() is called before. */
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
    if (outcome == STREAM_ENDED || outcome == STREAM_FAILED) /* the client has left, which is no fault */
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
