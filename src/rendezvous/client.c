/* client.c - a rank's connection to the key-value store. Blocks, with deadlines; one thread at a time. */
#include "rendezvous/client.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"
#include "net/handshake.h"
#include "net/socket.h"
#include "rendezvous/protocol.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_TIME CLOCK_SECOND /* for an answer that the server gives at once */

struct rendezvous_client {
    struct stream stream;
    int64_t deadline; /* of everything but a get */
    const struct interrupt *interrupt;
    uint32_t last_id;
    char who[HANDSHAKE_WHO_LIMIT];
    char local[SOCKET_TEXT];
    uint32_t epoch;
    int rank;
    char scope[32]; /* in front of every key */
    struct atfork_handler watch;
};

/* HVD_OK when the socket can go on; else HVD_TIMED_OUT or HVD_INTERRUPTED. */
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
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    opened->stream = (struct stream){.io = &stream_socket, .fd = -1};
    opened->watch = (struct atfork_handler){.in_child = close_in_child, .owner = opened};
    atfork_add(&opened->watch);
    opened->deadline = deadline;
    opened->interrupt = interrupt;
    snprintf(opened->who, sizeof opened->who, "the rendezvous at %s", address);
    hvd_code code = handshake_connect(address, secret, encrypted, opened->who, deadline, interrupt,
                                      &opened->stream, status);
    if (!code && !socket_local_address(opened->stream.fd, opened->local))
        code = status_set_errno(status, errno, "the address that reaches %s can't be found", opened->who);
    if (code) {
        rendezvous_close(opened);
        return code;
    }
    socket_send_at_once(opened->stream.fd);
    *client = opened;
    return HVD_OK;
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

/* ---- question and answer ------------------------------------------------------------------------------ */

static hvd_code broken(struct rendezvous_client *client, const char *why, hvd_status *status)
{
    socket_close(&client->stream.fd);
    return status_set(status, HVD_PEER_LOST, "%s %s; the launcher has probably ended, see its output",
                      client->who, why);
}

static hvd_code out_of_memory(const struct rendezvous_client *client, hvd_status *status)
{
    return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while talking to %s", client->who);
}

/* After the stream stopped: HVD_OK when it can go on. */
static hvd_code wait_for_stream(struct rendezvous_client *client, enum stream_outcome outcome,
                                int64_t deadline, hvd_status *status)
{
    if (outcome == STREAM_AGAIN)
        return wait_for_socket(client, stream_events(&client->stream), deadline, status);
    if (outcome == STREAM_NO_MEMORY)
        return out_of_memory(client, status);
    return broken(client, outcome == STREAM_TOO_LONG ? "sent a malformed answer" : "closed its connection",
                  status);
}

/* Behind what an interruption may have left of the last question. */
static hvd_code send_question(struct rendezvous_client *client, struct question *question, int64_t deadline,
                              hvd_status *status)
{
    enum stream_outcome outcome;
    hvd_code code = HVD_OK;
    question->id = ++client->last_id;
    question_encode(&client->stream.out, question);
    if (client->stream.out.failed)
        return out_of_memory(client, status);
    while (!code && (outcome = stream_write(&client->stream)))
        code = wait_for_stream(client, outcome, deadline, status);
    if (code == HVD_TIMED_OUT)
        code = broken(client, "takes no more questions", status); /* half a frame is on its way */
    return code;
}

static hvd_code over(const struct rendezvous_client *client, const struct answer *answer, hvd_status *status)
{
    char who[32] = "this process";
    struct wire_reader reader = wire_reader_of(answer->value, answer->length);
    uint32_t newest = wire_get_u32(&reader);
    if (client->rank >= 0)
        snprintf(who, sizeof who, "rank %d", client->rank);
    return status_set(
        status, HVD_REFUSED,
        "%s is in epoch %u of the job, but epoch %u has begun at %s; shut down and init again in "
        "the newer one (HOROVOD_EPOCH), or end",
        who, client->epoch, newest, client->who);
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

hvd_code rendezvous_enter(struct rendezvous_client *client, const char *job, uint32_t epoch, int rank,
                          int size, uint32_t *generation, hvd_status *status)
{
    struct answer answer;
    struct question question = {.kind = QUESTION_ENTER,
                                .epoch = epoch,
                                .rank = rank < 0 ? QUESTION_NO_RANK : (uint32_t)rank,
                                .size = (uint32_t)size};
    client->epoch = epoch;
    client->rank = rank;
    if (!copy_key(&question, "", job))
        return key_too_long(job, status);
    hvd_code code = ask(client, &question, client->deadline, &answer, status);
    if (code)
        return code;
    struct wire_reader reader = wire_reader_of(answer.value, answer.length);
    uint32_t given = wire_get_u32(&reader);
    if (generation)
        *generation = given;
    return wire_done(&reader) ? HVD_OK : broken(client, "sent a malformed answer", status);
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

hvd_code rendezvous_publish(struct rendezvous_client *client, const char *key, const void *value,
                            size_t length, int64_t deadline, hvd_status *status)
{
    struct answer answer;
    struct question question = {
        .kind = QUESTION_PUT, .lasting = true, .value = value, .length = (uint32_t)length};
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

hvd_code rendezvous_watch(struct rendezvous_client *client, const char *prefix, int64_t deadline,
                          struct watched *watched, char key[RENDEZVOUS_KEY_LIMIT], const uint8_t **value,
                          size_t *length, hvd_status *status)
{
    struct answer answer;
    struct question question = {.kind = QUESTION_WATCH, .after = watched->after};
    if (!copy_key(&question, "", prefix))
        return key_too_long(prefix, status);
    if (!watched->asked) {
        client->deadline = clock_now() + LOOK_TIME;
        TRY(send_question(client, &question, client->deadline, status));
        watched->asked = question.id;
    }
    hvd_code code = await_answer(client, watched->asked, deadline, &answer, status);
    if (code != HVD_TIMED_OUT && code != HVD_INTERRUPTED)
        watched->asked = 0;
    if (code)
        return code;
    struct wire_reader reader = wire_reader_of(answer.value, answer.length);
    uint32_t bytes = 0;
    watched->after = wire_get_u64(&reader);
    wire_get_string(&reader, key, RENDEZVOUS_KEY_LIMIT);
    *value = wire_get_blob(&reader, RENDEZVOUS_VALUE_LIMIT, &bytes);
    *length = bytes;
    return wire_done(&reader) ? HVD_OK : broken(client, "sent a malformed answer", status);
}

int rendezvous_descriptor(const struct rendezvous_client *client)
{
    return client->stream.fd;
}

hvd_code rendezvous_get(struct rendezvous_client *client, const char *key, int64_t deadline,
                        struct wire_writer *value, hvd_status *status)
{
    struct answer answer;
    int64_t now = clock_now();
    struct question question = {.kind = QUESTION_GET, .wait = deadline > now};
    if (!copy_key(&question, client->scope, key))
        return key_too_long(key, status);
    hvd_code code = ask(client, &question, question.wait ? deadline : now + LOOK_TIME, &answer, status);
    if (!code && answer.outcome == OUTCOME_ABSENT)
        code = status_set(status, HVD_TIMED_OUT, "nobody has put '%s' at %s", key, client->who);
    if (code)
        return code;
    wire_put_raw(value, answer.value, answer.length);
    return value->failed ? out_of_memory(client, status) : HVD_OK;
}
