/* client.c - a rank's connection to the key-value store. Blocks, with deadlines; one thread at a time. */
#include "rendezvous/client.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"
#include "net/find_server.h"
#include "net/socket.h"
#include "rendezvous/protocol.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_TIME (5 * CLOCK_SECOND) /* for an answer that the server gives at once */

struct rendezvous_client {
    struct stream stream;
    int64_t deadline; /* of everything except a get */
    const struct interrupt *interrupt;
    uint32_t last_id;
    char who[HANDSHAKE_WHO_LIMIT];
    char local[SOCKET_TEXT];
    uint32_t epoch;
    int rank;
    char scope[32];    /* in front of every key */
    uint32_t followed; /* id of the open question to follow a key; 0: none */
    struct atfork_handler watch;
};

/* Returns HVD_OK when the socket is ready; otherwise HVD_TIMED_OUT or HVD_INTERRUPTED. */
static hvd_code wait_for_socket(const struct rendezvous_client *client, short events, int64_t deadline,
                                hvd_status *status)
{
    do {
        if (socket_wait(client->stream.fd, events, interrupt_slice(client->interrupt, deadline)))
            return HVD_OK;
        if (interrupt_is_set(client->interrupt))
            return status_set(status, HVD_INTERRUPTED, "interrupted while waiting for %s", client->who);
    } while (clock_now() < deadline);
    return status_set(status, HVD_TIMED_OUT, "%s did not answer in time", client->who);
}

/* ---- connecting --------------------------------------------------------------------------------------- */

/* The server counts a rank as present while its connection is open. */
static void close_in_child(void *owner)
{
    struct rendezvous_client *client = owner;
    socket_close(&client->stream.fd);
}

hvd_code rendezvous_connect(const char *address, const char *secret, bool encrypted, int64_t deadline,
                            const struct interrupt *interrupt, struct rendezvous_client **client,
                            hvd_status *status)
{
    struct rendezvous_client *opened = calloc(1, sizeof *opened);
    if (!opened)
        return status_no_memory(status);
    opened->stream = (struct stream){.io = &stream_socket, .fd = -1};
    opened->watch = (struct atfork_handler){.in_child = close_in_child, .owner = opened};
    atfork_add(&opened->watch);
    opened->deadline = deadline;
    opened->interrupt = interrupt;
    snprintf(opened->who, sizeof opened->who, "the rendezvous at %s", address);
    const struct handshake_claim claim = {.role = HANDSHAKE_RENDEZVOUS, .encrypted = encrypted};
    const struct server server = {address, secret, opened->who, &claim, deadline, interrupt};
    hvd_code code = find_server(&server, &opened->stream.fd, &opened->stream.tls, status);
    if (code)
        goto close_client;
    if (!socket_local_address(opened->stream.fd, opened->local)) {
        code = status_set_errno(status, errno, "the address that reaches %s can't be found", opened->who);
        goto close_client;
    }
    socket_send_at_once(opened->stream.fd);
    *client = opened;
    return HVD_OK;
close_client:
    rendezvous_close(opened);
    return code;
}

void rendezvous_close(struct rendezvous_client *client)
{
    if (!client)
        return;
    atfork_remove(&client->watch);
    socket_close(&client->stream.fd);
    stream_free(&client->stream);
    free(client);
}

const char *rendezvous_local_address(const struct rendezvous_client *client)
{
    return client->local;
}

int rendezvous_descriptor(const struct rendezvous_client *client)
{
    return client->stream.fd;
}

void rendezvous_interrupt(struct rendezvous_client *client, const struct interrupt *interrupt)
{
    client->interrupt = interrupt;
}

/* ---- question and answer ------------------------------------------------------------------------------ */

static hvd_code broken(struct rendezvous_client *client, const char *why, hvd_status *status)
{
    socket_close(&client->stream.fd);
    return status_set(status, HVD_PEER_LOST, "%s %s; the launcher has probably ended, see its output",
                      client->who, why);
}

/* Called when the stream has stopped; returns HVD_OK when it can continue. */
static hvd_code wait_for_stream(struct rendezvous_client *client, enum stream_outcome outcome,
                                int64_t deadline, hvd_status *status)
{
    if (outcome == STREAM_AGAIN)
        return wait_for_socket(client, stream_events(&client->stream), deadline, status);
    if (outcome == STREAM_NO_MEMORY)
        return status_no_memory(status);
    return broken(client, outcome == STREAM_TOO_LONG ? "sent a malformed answer" : "closed its connection",
                  status);
}

/* The rest of the last question, if an interruption has left one, is sent first. */
static hvd_code send_question(struct rendezvous_client *client, struct question *question, int64_t deadline,
                              hvd_status *status)
{
    enum stream_outcome outcome;
    hvd_code code = HVD_OK;
    question->id = ++client->last_id;
    client->followed = 0; /* this question ends it */
    question_encode(&client->stream.out, question);
    if (client->stream.out.failed)
        return status_no_memory(status);
    while (!code && (outcome = stream_write(&client->stream)))
        code = wait_for_stream(client, outcome, deadline, status);
    if (code == HVD_TIMED_OUT)
        code = broken(client, "takes no more questions", status); /* half a frame is on its way */
    return code;
}

static hvd_code over(const struct rendezvous_client *client, const struct answer *answer, hvd_status *status)
{
    char who[32] = "this process";
    if (client->rank >= 0)
        snprintf(who, sizeof who, "rank %d", client->rank);
    return status_set(
        status, HVD_REFUSED,
        "%s is in epoch %u of the job, but epoch %u has begun at %s; shut down and init again in "
        "the newer one (HOROVOD_EPOCH), or end",
        who, client->epoch, answer->number, client->who);
}

/* Waits for the answer to a question that was sent. It lies in client->stream until the next question. */
static hvd_code await_answer(struct rendezvous_client *client, uint32_t id, int64_t deadline,
                             struct answer *answer, hvd_status *status)
{
    hvd_code code = client->stream.fd < 0 ? broken(client, "has lost its connection", status) : HVD_OK;
    bool fresh = false;
    while (!code && !fresh) {
        const uint8_t *body;
        size_t length;
        enum stream_outcome outcome = stream_read(&client->stream, PROTOCOL_FRAME_LIMIT, &body, &length);
        if (!outcome && !answer_decode(answer, body, length))
            outcome = STREAM_TOO_LONG;
        if (outcome)
            code = wait_for_stream(client, outcome, deadline, status);
        else
            fresh = answer->id == id; /* else: of a get that was given up */
    }
    if (!code && answer->outcome == OUTCOME_FULL)
        code = status_set(status, HVD_OUT_OF_MEMORY, "%s is full", client->who);
    if (!code && answer->outcome == OUTCOME_OVER)
        code = over(client, answer, status);
    return code;
}

static hvd_code ask(struct rendezvous_client *client, struct question *question, int64_t deadline,
                    struct answer *answer, hvd_status *status)
{
    if (client->stream.fd < 0)
        return broken(client, "has lost its connection", status);
    /* The question itself goes out within the time to start, however long its answer may take. */
    TRY(send_question(client, question, clock_earlier(deadline, client->deadline), status));
    return await_answer(client, question->id, deadline, answer, status);
}

/* The one place that makes keys. */
static bool copy_key(struct question *question, const char *scope, const char *key)
{
    return (size_t)snprintf(question->key, sizeof question->key, "%s%s", scope, key) < sizeof question->key;
}

static hvd_code key_too_long(const char *key, hvd_status *status)
{
    return status_set(status, HVD_INVALID_ARGUMENT,
                      "'%.64s...' is longer than the %d bytes that the rendezvous takes", key,
                      RENDEZVOUS_KEY_LIMIT - 1);
}

hvd_code rendezvous_enter_and_get(struct rendezvous_client *client, const struct rendezvous_place *place,
                                  const char *key, bool wait, uint32_t *generation, struct wire_writer *value,
                                  hvd_status *status)
{
    struct answer answer;
    struct question question = {.kind = QUESTION_ENTER,
                                .epoch = place->epoch,
                                .rank = (uint32_t)place->rank,
                                .size = (uint32_t)place->size,
                                .wait = wait};
    client->epoch = place->epoch;
    client->rank = place->rank;
    if ((size_t)snprintf(question.job, sizeof question.job, "%s", place->job) >= sizeof question.job)
        return key_too_long(place->job, status);
    if (!copy_key(&question, "", key))
        return key_too_long(key, status);
    TRY(ask(client, &question, client->deadline, &answer, status));
    if (generation)
        *generation = answer.number;
    wire_put_raw(value, answer.value, answer.length);
    return value->failed ? status_no_memory(status) : HVD_OK;
}

hvd_code rendezvous_enter(struct rendezvous_client *client, const struct rendezvous_place *place,
                          uint32_t *generation, hvd_status *status)
{
    struct wire_writer nothing = {0};
    return rendezvous_enter_and_get(client, place, "", false, generation, &nothing, status);
}

void rendezvous_scope(struct rendezvous_client *client, uint32_t generation, int set)
{
    snprintf(client->scope, sizeof client->scope, "%u.%d/", generation, set);
}

hvd_code rendezvous_put(struct rendezvous_client *client, const char *key, const void *value, size_t length,
                        hvd_status *status)
{
    struct answer answer;
    struct question question = {.kind = QUESTION_PUT, .value = value, .length = (uint32_t)length};
    if (length > RENDEZVOUS_VALUE_LIMIT)
        return status_set(status, HVD_INVALID_ARGUMENT, "the value of '%s' is longer than %d bytes", key,
                          RENDEZVOUS_VALUE_LIMIT);
    if (!copy_key(&question, client->scope, key))
        return key_too_long(key, status);
    return ask(client, &question, client->deadline, &answer, status);
}

static hvd_code publish(struct rendezvous_client *client, enum lifetime lifetime, const char *key,
                        const void *value, size_t length, int64_t deadline, hvd_status *status)
{
    struct answer answer;
    struct question question = {
        .kind = QUESTION_PUT, .lifetime = lifetime, .value = value, .length = (uint32_t)length};
    if (length > RENDEZVOUS_VALUE_LIMIT)
        return status_set(status, HVD_INVALID_ARGUMENT, "the value of '%.64s' is longer than %d bytes", key,
                          RENDEZVOUS_VALUE_LIMIT);
    if (!copy_key(&question, "", key))
        return key_too_long(key, status);
    const struct interrupt *interrupt = client->interrupt;
    client->deadline = deadline; /* that of the start has passed */
    client->interrupt = NULL;    /* it belongs to the thread that joined */
    hvd_code code = ask(client, &question, deadline, &answer, status);
    client->interrupt = interrupt;
    return code;
}

hvd_code rendezvous_publish(struct rendezvous_client *client, const char *key, const void *value,
                            size_t length, int64_t deadline, hvd_status *status)
{
    return publish(client, LIFETIME_EPOCH, key, value, length, deadline, status);
}

hvd_code rendezvous_report(struct rendezvous_client *client, const char *key, const void *value,
                           size_t length, int64_t deadline, hvd_status *status)
{
    return publish(client, LIFETIME_CONNECTION, key, value, length, deadline, status);
}

hvd_code rendezvous_follow(struct rendezvous_client *client, const char *key, uint32_t *seen,
                           int64_t deadline, struct wire_writer *value, hvd_status *status)
{
    struct answer answer;
    struct question question = {.kind = QUESTION_FOLLOW, .seen = *seen};
    if (client->stream.fd < 0)
        return broken(client, "has lost its connection", status);
    if (!client->followed) {
        if (!copy_key(&question, "", key))
            return key_too_long(key, status);
        TRY(send_question(client, &question, clock_now() + ANSWER_TIME, status));
        client->followed = question.id;
    }
    TRY(await_answer(client, client->followed, deadline, &answer, status));
    client->followed = 0;
    *seen = answer.number;
    wire_put_raw(value, answer.value, answer.length);
    return value->failed ? status_no_memory(status) : HVD_OK;
}

hvd_code rendezvous_get(struct rendezvous_client *client, const char *key, int64_t deadline,
                        struct wire_writer *value, hvd_status *status)
{
    struct answer answer;
    int64_t now = clock_now();
    struct question question = {.kind = QUESTION_GET, .wait = deadline > now};
    if (!copy_key(&question, client->scope, key))
        return key_too_long(key, status);
    hvd_code code = ask(client, &question, question.wait ? deadline : now + ANSWER_TIME, &answer, status);
    if (code == HVD_TIMED_OUT && !question.wait)
        return status_set(status, HVD_PEER_LOST, "%s has not answered for %g s; what it has is unknown",
                          client->who, (double)ANSWER_TIME / CLOCK_SECOND);
    if (code)
        return code;
    if (answer.outcome == OUTCOME_ABSENT)
        return status_set(status, HVD_TIMED_OUT, "nobody has put '%s' at %s", key, client->who);
    wire_put_raw(value, answer.value, answer.length);
    return value->failed ? status_no_memory(status) : HVD_OK;
}
