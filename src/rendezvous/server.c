/* server.c - the key-value store's server: one thread, which waits for all connections. Its work for an event
 * does not grow with their number. Unauthenticated ones are bounded in number and time (net/admission.h). */
#include "rendezvous/server.h"

#include "base/clock.h"
#include "base/platform_poller.h"
#include "base/status.h"
#include "base/thread.h"
#include "net/addresses.h"
#include "net/crypto.h"
#include "net/socket.h"
#include "rendezvous/connection.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECTION_LIMIT 16384
#define NEWS             64

struct hvd_rendezvous {
    char *secret;
    int port, stop, poller;
    struct admission admission; /* belongs to the thread, except in a child of fork() */
    pthread_t thread;
    bool forked; /* this is a child's copy: no thread, no descriptors */
    struct atfork_handler watch;
    pthread_mutex_t
        lock; /* of the members below; the thread holds it unless it waits, others by server_lock */
    struct store store;
    atomic_size_t entries, visits; /* of the store, for rendezvous_entries and rendezvous_visits */
    struct connection **connections;
    int count, capacity;
};

/* ---- connections -------------------------------------------------------------------------------------- */

/* The list changes under atfork_lock only, so that a child of fork() finds it whole and can close all
 * connections. */

/* Removes it from the poller first: a child of fork() may still have the socket open. */
static void release(struct hvd_rendezvous *server, struct connection *connection)
{
    struct connection *last = server->connections[server->count - 1];
    atfork_lock();
    platform_poller_remove(server->poller, connection->stream.fd);
    last->index = connection->index;
    server->connections[last->index] = last;
    server->count--;
    connection_free(connection, &server->store);
    atfork_unlock();
}

static void drop(struct hvd_rendezvous *server, struct connection *connection)
{
    if (!connection->proven)
        admission_remove(&server->admission, &connection->newcomer);
    release(server, connection);
    admission_resume(&server->admission);
}

static bool make_room(struct hvd_rendezvous *server)
{
    int capacity = server->capacity ? 2 * server->capacity : 64;
    if (server->count < server->capacity)
        return true;
    atfork_lock();
    struct connection **connections =
        realloc(server->connections, (size_t)capacity * sizeof *server->connections);
    if (connections) {
        server->connections = connections;
        server->capacity = capacity;
    }
    atfork_unlock();
    return connections;
}

static bool has_room(void *owner)
{
    struct hvd_rendezvous *server = owner;
    return server->count < CONNECTION_LIMIT && make_room(server);
}

static int accept_client(int listener, int kind, char from[SOCKET_TEXT])
{
    (void)kind;
    *from = '\0'; /* connection_create finds it */
    return socket_accept(listener);
}

static bool adopt_client(void *owner, int fd, int kind, const char *from)
{
    struct hvd_rendezvous *server = owner;
    struct connection *connection = connection_create(fd, server->secret);
    (void)kind;
    (void)from;
    if (!connection ||
        !platform_poller_add(server->poller, fd, POLLER_READ | POLLER_WRITE | POLLER_EDGE, connection)) {
        if (connection)
            connection_free(connection, &server->store);
        else
            close(fd);
        return false;
    }
    socket_send_at_once(fd);
    connection->index = server->count++;
    server->connections[connection->index] = connection;
    admission_add(&server->admission, &connection->newcomer, &connection->handshake);
    return true;
}

static void drop_newcomer(void *owner, struct newcomer *newcomer)
{
    release(owner, (struct connection *)((char *)newcomer - offsetof(struct connection, newcomer)));
}

static const struct admission_operations admission_operations = {
    .accept = accept_client, .adopt = adopt_client, .drop = drop_newcomer, .has_room = has_room};

static void advance(struct hvd_rendezvous *server, struct connection *connection)
{
    hvd_status status = {0};
    bool was_proven = connection->proven;
    hvd_code code = connection_advance(connection, &server->store, &status);
    if (!was_proven && connection->proven) {
        admission_remove(&server->admission, &connection->newcomer);
        code = connection_advance(connection, &server->store, &status);
    }
    if (code) {
        if (status.text[0])
            admission_log(&server->admission, status.text);
        drop(server, connection);
    }
}

/* ---- the thread --------------------------------------------------------------------------------------- */

/* Edge-triggered: each connection is advanced as far as possible. While there are news of others, only the
 * connection whose news are handled is dropped. */
static void *serve(void *argument)
{
    struct hvd_rendezvous *server = argument;
    struct poller_news news[NEWS];
    int64_t next = CLOCK_NEVER;
    for (bool stopped = false; !stopped;) {
        hvd_status fault;
        bool arrived = false;
        platform_poller_wait(server->poller, -1, next);
        pthread_mutex_lock(&server->lock);
        int count = platform_poller_read(server->poller, news, NEWS);
        for (int i = 0; i < count; i++) {
            if (news[i].tag == &server->stop)
                stopped = true;
            else if (news[i].tag == &server->admission)
                arrived = true;
            else
                advance(server, news[i].tag);
        }
        if (arrived && admission_accept(&server->admission, &fault))
            admission_log(&server->admission, fault.text);
        next = admission_keep_time(&server->admission);
        atomic_store(&server->entries, server->store.entries);
        atomic_store(&server->visits, server->store.visits);
        pthread_mutex_unlock(&server->lock);
    }
    return NULL;
}

/* ---- start and stop ----------------------------------------------------------------------------------- */

/* Closes descriptors only: another thread may have been changing the memory. */
static void close_in_child(void *owner)
{
    struct hvd_rendezvous *server = owner;
    for (int i = 0; i < server->count; i++)
        close(server->connections[i]->stream.fd);
    admission_abandon(&server->admission);
    socket_close(&server->stop);
    socket_close(&server->poller);
    server->forked = true;
}

static void server_free(struct hvd_rendezvous *server)
{
    while (server->count)
        drop(server, server->connections[server->count - 1]);
    admission_abandon(&server->admission);
    socket_close(&server->stop);
    socket_close(&server->poller);
    store_free(&server->store);
    pthread_mutex_destroy(&server->lock);
    free(server->connections);
    if (server->secret)
        crypto_wipe(server->secret, strlen(server->secret));
    free(server->secret);
    free(server);
}

static hvd_code listen_at(struct hvd_rendezvous *server, const struct addresses *where, const char *ports,
                          hvd_status *status)
{
    int listeners[ADDRESSES_LIMIT], count = where->count ? where->count : 1;
    TRY(addresses_listen(where, ports, listeners, &server->port, status));
    hvd_code code = HVD_OK;
    server->admission = (struct admission){.operations = &admission_operations,
                                           .owner = server,
                                           .poller = server->poller,
                                           .tag = &server->admission,
                                           .rank = -1};
    snprintf(server->admission.name, sizeof server->admission.name, "rendezvous at port %d: ", server->port);
    for (int i = 0; i < count; i++) {
        if (code)
            socket_close(&listeners[i]);
        else
            code = admission_listen(&server->admission, listeners[i], 0, status);
    }
    return code;
}

/* Cuts a text such as "10.0.0.7,[fd00::7]:20000-20099" into its addresses and ports. */
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

static hvd_code open_server(struct hvd_rendezvous *server, const char *secret, const struct addresses *where,
                            const char *ports, hvd_status *status)
{
    server->stop = platform_event_create();
    server->poller = platform_poller_create();
    server->secret = strdup(secret);
    if (server->stop < 0 || server->poller < 0)
        return status_set_errno(status, errno, "can't make an event descriptor for the rendezvous");
    if (!server->secret || !make_room(server))
        return status_no_memory(status);
    TRY(listen_at(server, where, ports, status));
    bool added = platform_poller_add(server->poller, server->stop, POLLER_READ, &server->stop);
    int error = added ? thread_start(&server->thread, serve, server) : errno;
    return error ? status_set_errno(status, error, "can't start the rendezvous' thread") : HVD_OK;
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
    TRY(parse_where(text, &where, &ports, status));
    struct hvd_rendezvous *server = calloc(1, sizeof *server);
    if (!server)
        return status_no_memory(status);
    pthread_mutex_init(&server->lock, NULL);
    hvd_code code = open_server(server, secret, &where, ports, status);
    if (code) {
        server_free(server);
        return code;
    }
    server->watch = (struct atfork_handler){close_in_child, server, NULL};
    atfork_add(&server->watch);
    *rendezvous = server;
    return status_ok(status);
}

struct store *server_lock(hvd_rendezvous *server, hvd_status *status)
{
    if (server->forked) {
        status_set(status, HVD_INVALID_ARGUMENT, "a forked child does not serve the rendezvous");
        return NULL;
    }
    pthread_mutex_lock(&server->lock);
    return &server->store;
}

void server_unlock(hvd_rendezvous *server)
{
    atomic_store(&server->entries, server->store.entries);
    pthread_mutex_unlock(&server->lock);
}

size_t rendezvous_entries(const hvd_rendezvous *rendezvous)
{
    return atomic_load(&rendezvous->entries);
}

size_t rendezvous_visits(const hvd_rendezvous *rendezvous)
{
    return atomic_load(&rendezvous->visits);
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
