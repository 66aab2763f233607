/* server.c - the key-value store's server: one thread, which polls all connections. Unauthenticated ones are
 * bounded in number and time, so a flood or a stalled one costs little. */
#include "base/addresses.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/platform.h"
#include "base/socket.h"
#include "base/status.h"
#include "base/thread.h"
#include "rendezvous/connection.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECTION_LIMIT 16384
#define PAUSE            (CLOCK_SECOND / 10)

enum { POLL_STOP, POLL_LISTENERS, POLL_CONNECTIONS = POLL_LISTENERS + ADDRESSES_LIMIT };

struct hvd_rendezvous {
    char *secret;
    int port, stop;
    int listeners[ADDRESSES_LIMIT]; /* -1: none */
    pthread_t thread;
    bool forked; /* this is a child's copy: no thread, no descriptors */
    struct atfork_handler watch;
    /* The thread's own. */
    struct store store;
    atomic_size_t entries; /* in it, for rendezvous_entries */
    struct connection **connections;
    struct pollfd *polls; /* POLL_CONNECTIONS more than connections */
    int count, capacity;
    int unauthenticated;
    int64_t paused_until; /* no new connections before */
    struct rate_limit rate_limit;
};

/* ---- connections -------------------------------------------------------------------------------------- */

/* The list changes under atfork_lock only, so that a child of fork() finds it whole and closes what is in it.
 */

static void log_fault(struct hvd_rendezvous *server, const char *text)
{
    int held;
    if (rate_limit_allows(&server->rate_limit, &held))
        log_warning(-1, "rendezvous at port %d: %s%s", server->port, text,
                    held ? " (and more before it)" : "");
}

static void drop(struct hvd_rendezvous *server, int index)
{
    server->unauthenticated -= !server->connections[index]->proven;
    atfork_lock();
    connection_free(server->connections[index], &server->store);
    server->connections[index] = server->connections[--server->count];
    atfork_unlock();
}

static int oldest_unauthenticated(const struct hvd_rendezvous *server)
{
    int oldest = -1;
    for (int i = 0; i < server->count; i++) {
        const struct connection *connection = server->connections[i];
        if (!connection->proven && (oldest < 0 || connection->since < server->connections[oldest]->since))
            oldest = i;
    }
    return oldest;
}

static bool grow(struct hvd_rendezvous *server)
{
    int capacity = server->capacity ? 2 * server->capacity : 64;
    struct connection **connections =
        realloc(server->connections, (size_t)capacity * sizeof *server->connections);
    /* Each is kept at once: where the other fails the list is larger than `capacity` says, which harms
     * nobody. */
    if (connections)
        server->connections = connections;
    struct pollfd *polls =
        realloc(server->polls, (size_t)(capacity + POLL_CONNECTIONS) * sizeof *server->polls);
    if (polls)
        server->polls = polls;
    if (!connections || !polls)
        return false;
    server->capacity = capacity;
    return true;
}

static bool make_room(struct hvd_rendezvous *server)
{
    if (server->count < server->capacity)
        return true;
    atfork_lock();
    bool grown = grow(server);
    atfork_unlock();
    return grown;
}

/* False when the next connection has to wait a little. */
static bool may_accept(struct hvd_rendezvous *server)
{
    if (server->unauthenticated >= UNAUTHENTICATED_LIMIT) {
        int oldest = oldest_unauthenticated(server);
        if (clock_now() - server->connections[oldest]->since < UNAUTHENTICATED_GRACE)
            return false;
        log_fault(server, "too many connections without a handshake; dropping the oldest");
        drop(server, oldest);
    }
    return server->count < CONNECTION_LIMIT && make_room(server);
}

/* 0, or an errno value. */
static int accept_one(struct hvd_rendezvous *server, int listener)
{
    int fd = socket_accept(listener);
    if (fd < 0)
        return errno;
    struct connection *connection = connection_create(fd, server->secret);
    if (!connection) {
        close(fd);
        return ENOMEM;
    }
    socket_send_at_once(fd);
    server->connections[server->count++] = connection;
    server->unauthenticated++;
    return 0;
}

static void accept_all(struct hvd_rendezvous *server, int listener)
{
    while (may_accept(server)) {
        atfork_lock();
        int error = accept_one(server, listener);
        atfork_unlock();
        if (error == EAGAIN)
            return;
        if (error && error != ECONNABORTED && error != EINTR)
            break; /* out of descriptors or memory */
    }
    server->paused_until = clock_now() + PAUSE; /* what ends soon makes room */
}

static void advance(struct hvd_rendezvous *server, int index)
{
    hvd_status status = {0};
    struct connection *connection = server->connections[index];
    bool was_proven = connection->proven, changed = false;
    hvd_code code = connection_advance(connection, &server->store, &changed, &status);
    if (!was_proven && connection->proven)
        server->unauthenticated--;
    if (code) {
        if (status.text[0])
            log_fault(server, status.text);
        drop(server, index);
    }
    /* Their answers are only put in place here; they leave once poll says that there is room. */
    for (int i = 0; changed && i < server->count; i++)
        connection_retry(server->connections[i]);
    atomic_store(&server->entries, server->store.entries);
}

/* ---- the thread --------------------------------------------------------------------------------------- */

static void drop_late_unauthenticated(struct hvd_rendezvous *server)
{
    int64_t now = clock_now();
    for (int i = server->count - 1; i >= 0; i--) {
        if (!server->connections[i]->proven && now - server->connections[i]->since >= UNAUTHENTICATED_TIME) {
            log_fault(server, "a connection did not finish its handshake in time");
            drop(server, i);
        }
    }
}

static int64_t next_deadline(const struct hvd_rendezvous *server)
{
    int oldest = server->unauthenticated ? oldest_unauthenticated(server) : -1;
    int64_t deadline = oldest < 0 ? CLOCK_NEVER : server->connections[oldest]->since + UNAUTHENTICATED_TIME;
    return server->paused_until ? clock_earlier(server->paused_until, deadline) : deadline;
}

static void fill_polls(struct hvd_rendezvous *server)
{
    struct pollfd *polls = server->polls;
    if (server->paused_until && clock_now() >= server->paused_until)
        server->paused_until = 0;
    polls[POLL_STOP] = (struct pollfd){server->stop, POLLIN, 0};
    /* poll passes over a negative descriptor. */
    for (int i = 0; i < ADDRESSES_LIMIT; i++)
        polls[POLL_LISTENERS + i] =
            (struct pollfd){server->paused_until ? -1 : server->listeners[i], POLLIN, 0};
    for (int i = 0; i < server->count; i++)
        polls[POLL_CONNECTIONS + i] =
            (struct pollfd){server->connections[i]->stream.fd, connection_events(server->connections[i]), 0};
}

static void *serve(void *argument)
{
    struct hvd_rendezvous *server = argument;
    for (;;) {
        fill_polls(server);
        int polled = server->count;
        poll(server->polls, (nfds_t)(polled + POLL_CONNECTIONS), socket_poll_timeout(next_deadline(server)));
        if (server->polls[POLL_STOP].revents)
            return NULL;
        /* Downward: what is dropped is replaced by the last one, which has had its turn. */
        for (int i = polled - 1; i >= 0; i--) {
            if (server->polls[POLL_CONNECTIONS + i].revents)
                advance(server, i);
        }
        drop_late_unauthenticated(server);
        for (int i = 0; i < ADDRESSES_LIMIT; i++)
            if (server->polls[POLL_LISTENERS + i].revents)
                accept_all(server, server->listeners[i]);
    }
}

/* ---- start and stop ----------------------------------------------------------------------------------- */

static void close_all(struct hvd_rendezvous *server)
{
    while (server->count)
        drop(server, server->count - 1);
    for (int i = 0; i < ADDRESSES_LIMIT; i++)
        socket_close(&server->listeners[i]);
    socket_close(&server->stop);
}

/* Only descriptors: the memory may be in the middle of a change. */
static void close_in_child(void *owner)
{
    struct hvd_rendezvous *server = owner;
    for (int i = 0; i < server->count; i++)
        close(server->connections[i]->stream.fd);
    for (int i = 0; i < ADDRESSES_LIMIT; i++)
        socket_close(&server->listeners[i]);
    socket_close(&server->stop);
    server->forked = true;
}

static void server_free(struct hvd_rendezvous *server)
{
    close_all(server);
    store_free(&server->store);
    free(server->connections);
    free(server->polls);
    if (server->secret)
        crypto_wipe(server->secret, strlen(server->secret));
    free(server->secret);
    free(server);
}

static hvd_code start_thread(struct hvd_rendezvous *server, hvd_status *status)
{
    int error = thread_start(&server->thread, serve, server);
    return error ? status_set_errno(status, error, "can't start the rendezvous' thread") : HVD_OK;
}

/* "10.0.0.7,[fd00::7]:20000-20099" and the like, which is cut into pieces. */
static hvd_code parse_where(char *text, struct addresses *where, const char **ports, hvd_status *status)
{
    char *rest;
    *ports = "";
    for (char *one = strtok_r(text, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        const char *own;
        char *address = where->list[where->count];
        if (where->count == ADDRESSES_LIMIT || !socket_split(one, address, SOCKET_TEXT, &own))
            return status_set(status, HVD_INVALID_ARGUMENT, "can't listen on '%s': it is no address", one);
        where->count += *address != '\0';
        *ports = *own ? own : *ports;
    }
    return HVD_OK;
}

hvd_code hvd_rendezvous_start(const char *address, const char *secret, hvd_rendezvous **rendezvous,
                              hvd_status *status)
{
    struct addresses where = {0};
    char text[ADDRESSES_TEXT];
    const char *ports;
    if (!secret || !*secret)
        return status_set(status, HVD_INVALID_ARGUMENT, "a rendezvous needs a secret");
    snprintf(text, sizeof text, "%s", address ? address : "");
    hvd_code code = parse_where(text, &where, &ports, status);
    if (code)
        return code;
    struct hvd_rendezvous *server = calloc(1, sizeof *server);
    if (!server)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the rendezvous");
    for (int i = 0; i < ADDRESSES_LIMIT; i++)
        server->listeners[i] = -1;
    server->stop = platform_event_create();
    server->secret = strdup(secret);
    if (server->stop < 0)
        code = status_set_errno(status, errno, "can't make an event descriptor for the rendezvous");
    else if (!server->secret || !make_room(server))
        code = status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the rendezvous");
    if (!code)
        code = addresses_listen(&where, ports, server->listeners, &server->port, status);
    if (!code)
        code = start_thread(server, status);
    if (code) {
        server_free(server);
        return code;
    }
    server->watch = (struct atfork_handler){close_in_child, server, NULL};
    atfork_add(&server->watch);
    *rendezvous = server;
    return status_ok(status);
}

hvd_code rendezvous_connect_to(const hvd_rendezvous *server, int64_t deadline,
                               struct rendezvous_client **client, hvd_status *status)
{
    char host[SOCKET_TEXT], address[SOCKET_TEXT + 16];
    if (!socket_local_address(server->listeners[0], host))
        return status_set_errno(status, errno, "the address of the rendezvous can't be found");
    snprintf(address, sizeof address, "[%s]:%d", host, server->port);
    return rendezvous_connect(address, server->secret, false, deadline, NULL, client, status);
}

size_t rendezvous_entries(const hvd_rendezvous *rendezvous)
{
    return atomic_load(&rendezvous->entries);
}

int hvd_rendezvous_port(const hvd_rendezvous *rendezvous)
{
    return rendezvous->port;
}

void hvd_rendezvous_stop(hvd_rendezvous *rendezvous)
{
    if (!rendezvous || rendezvous->forked)
        return; /* a child's copy is left as it is: its memory goes with the child */
    atfork_remove(&rendezvous->watch);
    platform_event_set(rendezvous->stop);
    pthread_join(rendezvous->thread, NULL);
    server_free(rendezvous);
}
