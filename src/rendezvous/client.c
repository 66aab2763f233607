/* client.c - a rank's connection to the key-value store. Blocks, with deadlines; one thread at a time. */
#include "rendezvous/client.h"

#include "base/clock.h"
#include "base/platform.h"
#include "base/status.h"
#include "base/thread.h"
#include "net/dial.h"
#include "net/handshake.h"
#include "net/socket.h"
#include "rendezvous/protocol.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_TIME    CLOCK_SECOND /* for an answer that the server gives at once */
#define CANDIDATES     16
#define HANDSHAKE_TIME (5 * CLOCK_SECOND) /* of a round; a busy server may have dropped the connection */
#define FIRST_PAUSE    (CLOCK_SECOND / 20)
#define LONGEST_PAUSE  (CLOCK_SECOND / 2)

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

/* One address of the server. */
struct server_address {
    struct candidate candidate;
    struct sockaddr_storage address;
    socklen_t length;
    struct handshake handshake;
};

struct search {
    struct dial dial;
    const char *addresses, *secret, *who;
    bool encrypted;
    hvd_status refusal; /* of a server that has answered; HVD_OK: none has */
    int count;
    struct server_address list[CANDIDATES];
};

/* HVD_TIMED_OUT: no name can be resolved yet. */
static hvd_code resolve(struct search *search, hvd_status *status)
{
    hvd_code code = HVD_OK;
    const char *at = search->addresses;
    search->count = 0;
    do {
        char one[300];
        struct addrinfo *found;
        size_t length = strcspn(at, ",");
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        code = socket_resolve(one, &found, status);
        if (code && code != HVD_TIMED_OUT)
            return code;
        for (const struct addrinfo *each = code ? NULL : found; each && search->count < CANDIDATES;
             each = each->ai_next) {
            struct server_address *address = &search->list[search->count++];
            *address = (struct server_address){.length = each->ai_addrlen};
            memcpy(&address->address, each->ai_addr, each->ai_addrlen);
        }
        if (!code)
            freeaddrinfo(found);
        at += length;
    } while (*at++ == ',');
    return search->count ? HVD_OK : code;
}

/* Mostly HVD_PEER_LOST: the server may not listen yet, so another round may help. */
static hvd_code cannot_connect(const struct search *search, int error, hvd_status *fault)
{
    status_set_errno(fault, error, "%s can't be reached", search->who);
    return error == EMFILE || error == ENFILE ? HVD_SYSTEM : HVD_PEER_LOST;
}

static hvd_code begin_address(struct candidate *candidate, hvd_status *fault)
{
    struct server_address *address = (struct server_address *)candidate;
    const struct search *search = (const struct search *)candidate->dial;
    struct handshake_claim claim = {.role = HANDSHAKE_RENDEZVOUS, .encrypted = search->encrypted};
    const struct addrinfo info = {.ai_family = address->address.ss_family,
                                  .ai_addr = (struct sockaddr *)&address->address,
                                  .ai_addrlen = address->length};
    TRY(handshake_initiate(&address->handshake, search->secret, &claim, search->who, fault));
    candidate->socket.fd = socket_connect(&info);
    return candidate->socket.fd < 0 ? cannot_connect(search, errno, fault) : HVD_IN_PROGRESS;
}

static hvd_code advance_address(struct candidate *candidate, hvd_status *fault)
{
    struct server_address *address = (struct server_address *)candidate;
    int error = candidate->connected ? 0 : socket_error(candidate->socket.fd);
    if (error)
        return cannot_connect((const struct search *)candidate->dial, error, fault);
    candidate->connected = true;
    return handshake_advance(&address->handshake, candidate->socket.fd, fault);
}

static short address_events(const struct candidate *candidate)
{
    const struct server_address *address = (const struct server_address *)candidate;
    return candidate->connected ? handshake_events(&address->handshake) : POLLOUT;
}

static void end_address(struct candidate *candidate, const hvd_status *fault)
{
    struct server_address *address = (struct server_address *)candidate;
    struct search *search = (struct search *)candidate->dial;
    handshake_end(&address->handshake);
    if (fault && candidate->code != HVD_PEER_LOST) {
        status_copy(&search->refusal, fault);
        search->refusal.code = candidate->code;
    }
}

static void name_address(const struct candidate *candidate, char *text, size_t capacity)
{
    char host[SOCKET_TEXT] = "";
    socket_host_text((const struct sockaddr *)&((const struct server_address *)candidate)->address, host);
    snprintf(text, capacity, "%s", host);
}

/* The answer of a server takes precedence over addresses without one. HVD_PEER_LOST: another round may help.
 */
static hvd_code explain(const struct search *search, hvd_status *status)
{
    if (search->refusal.code && search->count == 1)
        return status_copy(status, &search->refusal);
    if (search->refusal.code)
        status_set(status, search->refusal.code, "%s; tried", search->refusal.text);
    else
        status_set(status, HVD_PEER_LOST, "%s can't be reached", search->who);
    dial_append_outcomes(&search->dial, status->text, sizeof status->text);
    return status->code;
}

static hvd_code run_round(struct search *search, struct rendezvous_client *client, int poller,
                          hvd_status *status)
{
    static const struct dial_operations operations = {
        begin_address, advance_address, address_events, end_address, name_address,
    };
    search->refusal.code = HVD_OK;
    dial_init(&search->dial, &operations, poller, search->list, sizeof *search->list, search->count);
    hvd_code code = dial_run(&search->dial, HANDSHAKE_TIME, client->deadline, client->interrupt, status);
    if (code == HVD_OK) {
        struct server_address *winner = (struct server_address *)search->dial.winner;
        client->stream.fd = winner->candidate.socket.fd;
        client->stream.tls = winner->handshake.tls;
        winner->candidate.socket.fd = -1;
        winner->handshake.tls = NULL;
    } else if (code == HVD_PEER_LOST) {
        code = explain(search, status);
    } else if (code == HVD_INTERRUPTED) {
        explain(search, status);
    }
    dial_end(&search->dial);
    return code;
}

/* Returns false if it was interrupted. */
static bool wait_until(const struct interrupt *interrupt, int64_t until)
{
    while (clock_now() < until) {
        poll(NULL, 0, socket_poll_timeout(interrupt_slice(interrupt, until)));
        if (interrupt_is_set(interrupt))
            return false;
    }
    return true;
}

static hvd_code run_rounds(struct search *search, struct rendezvous_client *client, int poller,
                           hvd_status *status)
{
    hvd_status last;
    for (int64_t pause = FIRST_PAUSE;; pause = clock_earlier(2 * pause, LONGEST_PAUSE)) {
        hvd_code code = resolve(search, &last);
        if (code == HVD_TIMED_OUT && pause == FIRST_PAUSE)
            log_info(-1, "%s; it is looked up again until the time to start is over", last.text);
        if (!code)
            code = run_round(search, client, poller, &last);
        if (code == HVD_PEER_LOST || code == HVD_TIMED_OUT) {
            if (clock_now() >= client->deadline)
                return status_set(
                    status, HVD_TIMED_OUT,
                    "%.700s, and the time to start is over (HOROVOD_START_TIMEOUT); is the launcher "
                    "alive, and may this host reach it?",
                    last.text);
            if (wait_until(client->interrupt, clock_earlier(client->deadline, clock_now() + pause)))
                continue;
            code = HVD_INTERRUPTED;
        }
        if (code == HVD_INTERRUPTED)
            return status_set(status, code, "interrupted: %.400s", last.text);
        return code ? status_copy(status, &last) : HVD_OK;
    }
}

/* Connects and authenticates: sets descriptor and TLS of the client's stream. */
static hvd_code find_server(struct rendezvous_client *client, const char *addresses, const char *secret,
                            bool encrypted, hvd_status *status)
{
    int poller = platform_poller_create();
    if (poller < 0)
        return status_set_errno(status, errno, "can't make a descriptor to connect to %s", client->who);
    hvd_code code;
    struct search *search = calloc(1, sizeof *search);
    if (!search) {
        code = status_no_memory(status);
        goto close_poller;
    }
    search->addresses = addresses;
    search->secret = secret;
    search->who = client->who;
    search->encrypted = encrypted;
    code = run_rounds(search, client, poller, status);
    free(search);
close_poller:
    socket_close(&poller);
    return code;
}

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
    hvd_code code = find_server(opened, address, secret, encrypted, status);
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
    TRY(ask(client, &question, question.wait ? deadline : now + ANSWER_TIME, &answer, status));
    if (answer.outcome == OUTCOME_ABSENT)
        return status_set(status, HVD_TIMED_OUT, "nobody has put '%s' at %s", key, client->who);
    wire_put_raw(value, answer.value, answer.length);
    return value->failed ? status_no_memory(status) : HVD_OK;
}
