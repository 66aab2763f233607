/* nodes.c - accepts nodes, checks what they say of themselves, and ends the job if they don't fit. One
 * thread. */
#include "nodes.h"

#include "base/clock.h"
#include "base/platform_poller.h"
#include "base/status.h"
#include "net/admission.h"
#include "net/crypto.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NEWS         16
#define TICK         (CLOCK_SECOND / 10) /* signals are looked for that often */
#define WAITING      CLOCK_SECOND        /* between frames for nodes that wait */
#define LAST_HELLOS  CLOCK_SECOND        /* for nodes that have connected when the job is ended */
#define HELLO_LIMIT  4096
#define NAMED_NODES  8
#define LINE_LIMIT   2300
#define SECRET_LABEL "horovod ranks of job "

/* A connection, from its first byte on. */
struct arrival {
    struct newcomer newcomer;
    struct arrival *next;
    struct handshake handshake;
    struct stream stream;
    bool proven;
    int node; /* 0: it has not said */
    struct node_hello hello;
};

struct gathering {
    struct nodes *nodes;
    const struct node *own;
    const struct settings *settings;
    struct admission admission;
    int poller;
    struct arrival *list;                        /* all connections */
    struct arrival **places;                     /* [count] by node; NULL: it has not come */
    char refused[sizeof((hvd_status *)0)->text]; /* why the last connection was refused that did not become a
                                                    node */
    hvd_status fault;                            /* for which the job ends */
};

struct handshake_claim nodes_claim(const struct settings *settings)
{
    return (struct handshake_claim){.role = HANDSHAKE_NODE, .encrypted = settings->encryption};
}

void nodes_derive_secret(const char *given, const char *job, char secret[JOB_SECRET_DIGITS + 1])
{
    uint8_t mac[CRYPTO_MAC_BYTES];
    char label[sizeof SECRET_LABEL + JOB_ID_DIGITS];
    _Static_assert(2 * sizeof mac == JOB_SECRET_DIGITS, "a secret is a MAC in hex digits");
    snprintf(label, sizeof label, SECRET_LABEL "%s", job);
    crypto_mac(given, strlen(given), label, strlen(label), mac);
    for (size_t i = 0; i < sizeof mac; i++)
        snprintf(secret + 2 * i, 3, "%02x", mac[i]);
    crypto_wipe(mac, sizeof mac);
}

int nodes_signal(const struct guard *guard)
{
    static const int ending[] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t pending;
    sigpending(&pending);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) {
        if (sigismember(&pending, ending[i]) == 1)
            return ending[i];
    }
    return guard_parent_ended(guard) ? SIGKILL : 0;
}

/* ---- connections --------------------------------------------------------------------------------------- */

static int accept_node(int listener, int kind, char from[SOCKET_TEXT])
{
    (void)kind;
    *from = '\0'; /* adopt_node finds it */
    return socket_accept(listener);
}

static bool adopt_node(void *owner, int fd, int kind, const char *from)
{
    struct gathering *gathering = owner;
    char who[SOCKET_TEXT];
    struct handshake_claim claim = nodes_claim(gathering->settings);
    struct arrival *arrival = calloc(1, sizeof *arrival);
    (void)kind;
    (void)from;
    if (!arrival ||
        !platform_poller_add(gathering->poller, fd, POLLER_READ | POLLER_WRITE | POLLER_EDGE, arrival)) {
        free(arrival);
        close(fd);
        return false;
    }
    socket_send_at_once(fd);
    arrival->stream = (struct stream){.io = &stream_socket, .fd = fd};
    handshake_accept(&arrival->handshake, gathering->nodes->secret, &claim, socket_peer_text(fd, who));
    arrival->next = gathering->list;
    gathering->list = arrival;
    admission_add(&gathering->admission, &arrival->newcomer, &arrival->handshake);
    return true;
}

static void release(struct gathering *gathering, struct arrival *arrival)
{
    struct arrival **place = &gathering->list;
    while (*place && *place != arrival)
        place = &(*place)->next;
    if (*place)
        *place = arrival->next;
    if (arrival->node)
        gathering->places[arrival->node] = NULL;
    handshake_end(&arrival->handshake);
    socket_close(&arrival->stream.fd);
    stream_free(&arrival->stream);
    free(arrival);
}

static void drop_newcomer(void *owner, struct newcomer *newcomer)
{
    release(owner, (struct arrival *)((char *)newcomer - offsetof(struct arrival, newcomer)));
}

static const struct admission_operations admission_operations = {
    .accept = accept_node, .adopt = adopt_node, .drop = drop_newcomer};

/* A node waits for the answer, so there is room for it in the socket. */
static void send_frame(struct stream *stream, enum frame_kind kind, const void *body, size_t length)
{
    struct wire_writer *out = &stream->out;
    wire_put_u32(out, (uint32_t)length + 1);
    wire_put_u8(out, (uint8_t)kind);
    wire_put_raw(out, body, length);
    if (!out->failed)
        stream_write(stream);
}

static void send_end(struct stream *stream, int exit_code, const char *why)
{
    char line[LINE_LIMIT];
    int length = snprintf(line, sizeof line, "horovodrun: %s\n", why);
    uint32_t code = (uint32_t)exit_code;
    send_frame(stream, FRAME_SAID, line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
    send_frame(stream, FRAME_OUTCOME, &code, sizeof code);
}

/* ---- what nodes say ------------------------------------------------------------------------------------ */

static const char *title(const struct arrival *arrival, char *text, size_t capacity)
{
    snprintf(text, capacity, "%.100s (%.60s)", arrival->hello.host, arrival->handshake.who);
    return text;
}

/* Sets the fault for which the job ends, if there is one. */
static void check_hello(struct gathering *gathering, const struct arrival *arrival)
{
    const struct node_hello *hello = &arrival->hello;
    const struct node *own = gathering->own;
    hvd_status *fault = &gathering->fault;
    char one[200], other[200];
    title(arrival, one, sizeof one);
    if (strcmp(hello->release, hvd_version()) != 0)
        status_set(fault, HVD_REFUSED,
                   "node %d on host %s has release %s, node 0 has %s; install the same release on all nodes",
                   hello->index, one, hello->release, hvd_version());
    else if (hello->count != own->count)
        status_set(fault, HVD_INVALID_ARGUMENT,
                   "node %d on host %s says that there are %d nodes, node 0 says %lld; give all the same "
                   "--nnodes",
                   hello->index, one, hello->count, (long long)own->count);
    else if (hello->index == 0 || hello->index >= own->count)
        status_set(fault, HVD_INVALID_ARGUMENT,
                   "the horovodrun on host %s calls itself node %d of %lld; give each node its own "
                   "--node-rank",
                   one, hello->index, (long long)own->count);
    else if (gathering->places[hello->index])
        status_set(fault, HVD_INVALID_ARGUMENT,
                   "there are two nodes %d, on host %s and on host %s; give each node its own --node-rank",
                   hello->index, title(gathering->places[hello->index], other, sizeof other), one);
    else if (hello->ranks > setting_by_key("size")->maximum)
        status_set(fault, HVD_INVALID_ARGUMENT, "node %d on host %s requests %d ranks, too many for one job",
                   hello->index, one, hello->ranks);
}

/* Reads FRAME_NODE, and nothing behind it. Returns false if the connection is to be closed. */
static bool read_hello(struct gathering *gathering, struct arrival *arrival)
{
    const uint8_t *frame;
    size_t length;
    enum stream_outcome outcome = stream_read(&arrival->stream, HELLO_LIMIT, &frame, &length);
    if (outcome == STREAM_AGAIN)
        return true;
    struct wire_reader body = wire_reader_of(frame, outcome ? 0 : length);
    if (outcome || wire_get_u8(&body) != FRAME_NODE || !node_hello_get(&arrival->hello, &body)) {
        snprintf(gathering->refused, sizeof gathering->refused, "%.100s did not say which node it is",
                 arrival->handshake.who);
        return false;
    }
    wire_reset(&arrival->stream.in);
    arrival->stream.returned = false;
    check_hello(gathering, arrival);
    if (!gathering->fault.code) {
        arrival->node = arrival->hello.index;
        gathering->places[arrival->node] = arrival;
    }
    return true;
}

/* A node that waits sends nothing: what can be read is its end. */
static bool still_waits(const struct arrival *arrival)
{
    char byte;
    return recv(arrival->stream.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* Returns false if the connection is to be closed. */
static bool advance(struct gathering *gathering, struct arrival *arrival)
{
    hvd_status status;
    if (arrival->node)
        return still_waits(arrival);
    if (!arrival->proven) {
        hvd_code code = handshake_advance(&arrival->handshake, arrival->stream.fd, &status);
        if (code == HVD_IN_PROGRESS)
            return true;
        if (code) {
            snprintf(gathering->refused, sizeof gathering->refused, "%s", status.text);
            return false;
        }
        arrival->proven = true;
        arrival->stream.tls = arrival->handshake.tls;
        arrival->handshake.tls = NULL;
        admission_remove(&gathering->admission, &arrival->newcomer);
    }
    return read_hello(gathering, arrival);
}

static void on_news(struct gathering *gathering, struct arrival *arrival)
{
    if (advance(gathering, arrival))
        return;
    if (!arrival->proven)
        admission_remove(&gathering->admission, &arrival->newcomer);
    release(gathering, arrival);
    admission_resume(&gathering->admission);
}

/* ---- waiting ------------------------------------------------------------------------------------------- */

static int count_missing(const struct gathering *gathering)
{
    int count = 0;
    for (int i = 1; i < gathering->nodes->count; i++)
        count += !gathering->places[i];
    return count;
}

static hvd_code say_missing(const struct gathering *gathering, hvd_status *status)
{
    char names[256] = "";
    int missing = count_missing(gathering), named = 0;
    for (int i = 1; i < gathering->nodes->count && named < NAMED_NODES; i++) {
        if (!gathering->places[i])
            append_text(names, sizeof names, named++ ? ", %d" : "%d", i);
    }
    return status_set(
        status, HVD_TIMED_OUT,
        "%s %s%s of %d %s not come within %g s (--start-timeout); does horovodrun run there with the same "
        "--nnodes, and does it reach node 0 at %s?%s%s",
        missing == 1 ? "node" : "nodes", names, named < missing ? ", ..." : "", gathering->nodes->count,
        missing == 1 ? "has" : "have", gathering->settings->start_timeout_seconds, gathering->own->rendezvous,
        *gathering->refused ? " A connection was refused: " : "", gathering->refused);
}

static void send_waiting(struct gathering *gathering)
{
    for (int i = 1; i < gathering->nodes->count; i++) {
        if (gathering->places[i])
            send_frame(&gathering->places[i]->stream, FRAME_WAITING, "", 0);
    }
}

/* Waits until then for connections and for what they send. */
static hvd_code receive(struct gathering *gathering, int64_t until, hvd_status *status)
{
    struct poller_news news[NEWS];
    bool arrived = false;
    platform_poller_wait(gathering->poller, -1, until);
    int count = platform_poller_read(gathering->poller, news, NEWS);
    for (int i = 0; i < count; i++) {
        if (news[i].tag == &gathering->admission)
            arrived = true;
        else
            on_news(gathering, news[i].tag);
    }
    if (gathering->fault.code)
        return status_copy(status, &gathering->fault);
    if (arrived)
        TRY(admission_accept(&gathering->admission, status));
    admission_keep_time(&gathering->admission);
    return HVD_OK;
}

/* Returns false while a node has connected that is not yet known, and so would not get why the job ends. */
static bool all_have_reported(const struct gathering *gathering)
{
    for (const struct arrival *each = gathering->list; each; each = each->next) {
        if (!*each->hello.release)
            return false;
    }
    return true;
}

/* A busy machine may have kept this process from reading what had arrived when the time was over. */
static hvd_code wait_for_nodes(struct gathering *gathering, const struct guard *guard, int *exit_code,
                               hvd_status *status)
{
    int64_t deadline = clock_after(gathering->settings->start_timeout_seconds), next = 0, end = 0;
    while (count_missing(gathering)) {
        int signal = nodes_signal(guard);
        int64_t now = clock_now();
        if (signal && !end)
            end = now + LAST_HELLOS;
        if (now > next) {
            send_waiting(gathering);
            next = now + WAITING;
        }
        TRY(receive(gathering, (signal && all_have_reported(gathering)) || now > deadline ? now : now + TICK,
                    status));
        if (signal && (now > end || all_have_reported(gathering))) {
            *exit_code = 128 + signal;
            return status_set(status, HVD_INTERRUPTED, "got %s; ending the job", signal_name(signal));
        }
        if (now > deadline && count_missing(gathering))
            return say_missing(gathering, status);
    }
    return HVD_OK;
}

/* At all interfaces unless some are chosen: the name of node 0 may lead here in any way, also to loopback. */
static hvd_code listen_for_nodes(struct gathering *gathering, hvd_status *status)
{
    const char *interfaces = gathering->settings->network_interface;
    const char *address = gathering->own->rendezvous, *ports = strrchr(address, ':') + 1;
    struct addresses at = {0};
    int listeners[ADDRESSES_LIMIT], port;
    if (addresses_are_loopback(address)) {
        addresses_add_loopback(&at, address);
    } else if (*interfaces) {
        TRY(addresses_find(interfaces, "", &at, status));
        addresses_add_loopback(&at, address);
    }
    hvd_status problem;
    if (addresses_listen(&at, ports, listeners, &port, &problem))
        return status_set(status, problem.code,
                          "node 0 can't listen for the other nodes: %.600s; give all nodes another port in "
                          "--rendezvous",
                          problem.text);
    gathering->admission = (struct admission){.operations = &admission_operations,
                                              .owner = gathering,
                                              .poller = gathering->poller,
                                              .tag = &gathering->admission,
                                              .rank = -1,
                                              .name = "nodes: "};
    hvd_code code = HVD_OK;
    for (int i = 0; i < (at.count ? at.count : 1); i++) {
        if (code)
            socket_close(&listeners[i]);
        else
            code = admission_listen(&gathering->admission, listeners[i], 0, status);
    }
    return code;
}

/* ---- the end ------------------------------------------------------------------------------------------- */

/* Hands the connections over, and lays out the ranks. */
static hvd_code fill_hosts(struct gathering *gathering, struct hosts *hosts, hvd_status *status)
{
    struct host own = {.local = true, .slots = gathering->own->ranks};
    if (gethostname(own.name, sizeof own.name - 1))
        snprintf(own.name, sizeof own.name, "localhost");
    TRY(hosts_append(hosts, &own, status));
    for (int i = 1; i < gathering->nodes->count && gathering->places[i]; i++) { /* none is missing */
        struct arrival *arrival = gathering->places[i];
        struct host host = {.slots = arrival->hello.ranks};
        memcpy(host.name, arrival->hello.host, sizeof host.name);
        TRY(hosts_append(hosts, &host, status));
    }
    TRY(hosts_layout(hosts, 0, status));
    for (int i = 1; i < gathering->nodes->count && gathering->places[i]; i++) { /* none is missing */
        struct arrival *arrival = gathering->places[i];
        gathering->nodes->streams[i] = arrival->stream;
        arrival->stream = (struct stream){.fd = -1};
    }
    return HVD_OK;
}

static void close_all(struct gathering *gathering)
{
    admission_close(&gathering->admission);
    while (gathering->list)
        release(gathering, gathering->list);
    socket_close(&gathering->poller);
    free(gathering->places);
}

hvd_code nodes_gather(struct hosts *hosts, const struct node *node, const struct settings *settings,
                      const struct guard *guard, int *exit_code, hvd_status *status)
{
    struct nodes *nodes = calloc(1, sizeof *nodes);
    struct gathering gathering = {.nodes = nodes, .own = node, .settings = settings, .poller = -1};
    *exit_code = 1;
    if (!nodes)
        return status_no_memory(status);
    hosts->nodes = nodes;
    nodes->secret = settings->secret;
    nodes->count = (int)node->count;
    nodes->streams = calloc((size_t)nodes->count, sizeof *nodes->streams);
    gathering.places = calloc((size_t)nodes->count, sizeof *gathering.places);
    gathering.poller = platform_poller_create();
    hvd_code code = HVD_OK;
    if (!nodes->streams || !gathering.places)
        code = status_no_memory(status);
    else if (gathering.poller < 0)
        code = status_set_errno(status, errno, "can't make a descriptor to wait for the nodes");
    if (!code)
        code = listen_for_nodes(&gathering, status);
    if (!code)
        code = wait_for_nodes(&gathering, guard, exit_code, status);
    if (!code)
        code = fill_hosts(&gathering, hosts, status);
    for (struct arrival *each = gathering.list; code && each; each = each->next) {
        if (*each->hello.release) /* also one that does not fit */
            send_end(&each->stream, *exit_code, status->text);
    }
    close_all(&gathering);
    return code;
}

void nodes_dismiss(struct nodes *nodes, int exit_code, const char *why)
{
    for (int i = 1; nodes && nodes->streams && i < nodes->count; i++) {
        if (nodes->streams[i].io)
            send_end(&nodes->streams[i], exit_code, why);
    }
}

void nodes_free(struct nodes *nodes)
{
    for (int i = 1; nodes && nodes->streams && i < nodes->count; i++) {
        if (nodes->streams[i].io)
            close(nodes->streams[i].fd);
        stream_free(&nodes->streams[i]);
    }
    if (nodes)
        free(nodes->streams);
    free(nodes);
}
