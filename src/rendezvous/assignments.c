/* assignments.c - what a starter does with the rendezvous that it serves: one key for each slot of an epoch,
 * keys of its own, and watches for what is put. Only assignments_enter, for a process with a slot, uses a
 * connection. One thread at a time uses a client or a watch. */
#include "rendezvous/assignments.h"

#include "base/platform_poller.h"
#include "base/status.h"
#include "base/thread.h"
#include "net/socket.h"
#include "rendezvous/connection.h"
#include "rendezvous/server.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A key that is too long stays longer than the limit, so that it is refused. */
static const char *slot_key(const char *slot, char key[RENDEZVOUS_KEY_LIMIT + 1])
{
    snprintf(key, RENDEZVOUS_KEY_LIMIT + 1, "slot/%s", slot);
    return key;
}

static hvd_code is_full(const hvd_rendezvous *rendezvous, hvd_status *status)
{
    return status_set(status, HVD_OUT_OF_MEMORY, "the rendezvous at port %d is full",
                      hvd_rendezvous_port(rendezvous));
}

/* `key` may be the beginning of one. */
static hvd_code check_arguments(const char *job, int32_t epoch, const char *key, hvd_status *status)
{
    if (epoch < 0)
        return status_set(status, HVD_INVALID_ARGUMENT, "epoch %d is negative", (int)epoch);
    if (strlen(key) >= RENDEZVOUS_KEY_LIMIT || strlen(job) >= RENDEZVOUS_KEY_LIMIT)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "'%.64s...' is longer than the %d bytes that the rendezvous takes",
                          strlen(key) >= RENDEZVOUS_KEY_LIMIT ? key : job, RENDEZVOUS_KEY_LIMIT - 1);
    return HVD_OK;
}

/* Puts a key into the store of this process, which needs no connection. */
static hvd_code publish(hvd_rendezvous *rendezvous, const char *job, int32_t epoch, const char *key,
                        const void *value, size_t length, hvd_status *status)
{
    uint32_t newest;
    const struct store_value stored = {.bytes = value, .length = (uint32_t)length};
    TRY(check_arguments(job, epoch, key, status));
    if (length > RENDEZVOUS_VALUE_LIMIT)
        return status_set(status, HVD_INVALID_ARGUMENT, "the value of '%s' is longer than %d bytes", key,
                          RENDEZVOUS_VALUE_LIMIT);
    struct store *store = server_lock(rendezvous, status);
    if (!store)
        return HVD_INVALID_ARGUMENT;
    enum outcome outcome = connections_publish(store, job, (uint32_t)epoch, key, &stored, &newest);
    server_unlock(rendezvous);
    if (outcome == OUTCOME_OVER)
        return status_set(status, HVD_REFUSED,
                          "this process assigns ranks in epoch %d of the job, but epoch %u has begun at the "
                          "rendezvous at port %d",
                          (int)epoch, newest, hvd_rendezvous_port(rendezvous));
    return outcome == OUTCOME_DONE ? HVD_OK : is_full(rendezvous, status);
}

hvd_code hvd_rendezvous_put(hvd_rendezvous *rendezvous, const char *job, int32_t epoch, const char *key,
                            const void *value, size_t length, hvd_status *status)
{
    TRY(publish(rendezvous, job, epoch, key, value, length, status));
    return status_ok(status);
}

hvd_code assignments_remove(hvd_rendezvous *rendezvous, const char *job, const char *key, hvd_status *status)
{
    TRY(check_arguments(job, 0, key, status));
    struct store *store = server_lock(rendezvous, status);
    if (!store)
        return HVD_INVALID_ARGUMENT;
    struct epoch *epoch = store_epoch(store, job);
    if (epoch)
        store_remove(store, &epoch->table, key);
    server_unlock(rendezvous);
    return status_ok(status);
}

static hvd_code publish_assignment(hvd_rendezvous *rendezvous, const char *job, int32_t epoch,
                                   const hvd_assignment *assignment, int size, hvd_status *status)
{
    char key[RENDEZVOUS_KEY_LIMIT + 1];
    struct wire_writer value = {0};
    const char *slot = assignment->slot ? assignment->slot : "",
               *host = assignment->host ? assignment->host : "";
    if (!*slot || assignment->rank < -1 || assignment->rank >= size || strlen(host) >= TOPOLOGY_HOST_LIMIT)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "slot '%.100s' as rank %d of %d on host '%.100s' is no assignment in an epoch",
                          slot, assignment->rank, size, host);
    wire_put_u32(&value, (uint32_t)assignment->rank);
    wire_put_u32(&value, (uint32_t)size);
    wire_put_string(&value, host);
    hvd_code code = value.failed ? status_no_memory(status)
                                 : publish(rendezvous, job, epoch, slot_key(slot, key), value.bytes,
                                           value.length, status);
    wire_writer_free(&value);
    return code;
}

hvd_code hvd_rendezvous_assign(hvd_rendezvous *rendezvous, const char *job, int32_t epoch,
                               const hvd_assignment *assignments, int32_t count, hvd_status *status)
{
    int size = 0;
    for (int32_t i = 0; i < count; i++)
        size += assignments[i].rank >= 0;
    for (int32_t i = 0; i < count; i++)
        TRY(publish_assignment(rendezvous, job, epoch, &assignments[i], size, status));
    return status_ok(status);
}

bool assignment_decode(struct assignment *assignment, const uint8_t *bytes, size_t length)
{
    struct wire_reader reader = wire_reader_of(bytes, length);
    assignment->rank = (int)wire_get_u32(&reader);
    assignment->size = (int)wire_get_u32(&reader);
    wire_get_string(&reader, assignment->host, sizeof assignment->host);
    return wire_done(&reader) && assignment->rank >= -1 && assignment->size >= 0 &&
           (assignment->rank < assignment->size || assignment->rank < 0);
}

static hvd_code read_assignment(struct assignment *assignment, const struct wire_writer *value,
                                const char *slot, hvd_status *status)
{
    if (!assignment_decode(assignment, value->bytes, value->length))
        return status_set(status, HVD_REFUSED, "the place of slot '%s' is malformed", slot);
    if (assignment->rank < 0)
        return status_set(
            status, HVD_REFUSED,
            "slot '%s' has no place among the %d ranks of this epoch: its starter has taken it out", slot,
            assignment->size);
    return HVD_OK;
}

hvd_code assignments_enter(struct rendezvous_client *client, const struct rendezvous_place *place,
                           const char *slot, bool wait, uint32_t *generation, struct assignment *assignment,
                           hvd_status *status)
{
    char key[RENDEZVOUS_KEY_LIMIT + 1];
    struct wire_writer value = {0};
    *assignment = (struct assignment){.rank = -1};
    hvd_code code =
        rendezvous_enter_and_get(client, place, slot_key(slot, key), wait, generation, &value, status);
    if (code == HVD_TIMED_OUT && wait)
        status_set(
            status, code,
            "slot '%s' has not got a place in this epoch (HOROVOD_EPOCH), and the time to start is over "
            "(HOROVOD_START_TIMEOUT); see the output of the starter",
            slot);
    else if (!code && (wait || value.length))
        code = read_assignment(assignment, &value, slot, status);
    wire_writer_free(&value);
    return code;
}

/* ---- watches ------------------------------------------------------------------------------------------- */

/* The server is one of this process, so a watch reads its store and needs no connection. */
struct hvd_watch {
    hvd_rendezvous *server;
    struct epoch *epoch; /* the newest of the job; constant */
    struct watcher watcher;
    uint64_t after; /* number of the last put that was returned */
    size_t skipped; /* bytes at the start of each key */
    struct atfork_handler at_fork;
    struct wire_writer value;
    char prefix[RENDEZVOUS_KEY_LIMIT], key[RENDEZVOUS_KEY_LIMIT];
};

static void close_in_child(void *owner)
{
    struct hvd_watch *watch = owner;
    socket_close(&watch->watcher.event);
}

static hvd_code check_epoch(const struct hvd_watch *watch, hvd_status *status)
{
    if (watch->watcher.number >= watch->epoch->number)
        return HVD_OK;
    return status_set(status, HVD_REFUSED,
                      "this process watches epoch %u of the job, but epoch %u has begun at the rendezvous at "
                      "port %d",
                      watch->watcher.number, watch->epoch->number, hvd_rendezvous_port(watch->server));
}

/* Adds the watcher to those of the job. */
static hvd_code add_watcher(struct hvd_watch *watch, const char *job, hvd_status *status)
{
    struct store *store = server_lock(watch->server, status);
    if (!store)
        return HVD_INVALID_ARGUMENT;
    watch->epoch = store_epoch(store, job);
    hvd_code code = watch->epoch ? check_epoch(watch, status) : is_full(watch->server, status);
    if (!code) {
        watch->watcher.next = watch->epoch->watchers;
        watch->epoch->watchers = &watch->watcher;
    }
    server_unlock(watch->server);
    return code;
}

hvd_code assignments_watch(hvd_rendezvous *rendezvous, const char *job, int32_t epoch, const char *prefix,
                           size_t skipped, hvd_watch **watch, hvd_status *status)
{
    hvd_code code;
    TRY(check_arguments(job, epoch, prefix, status));
    struct hvd_watch *opened = calloc(1, sizeof *opened);
    if (!opened)
        return status_no_memory(status);
    opened->server = rendezvous;
    opened->skipped = skipped;
    opened->at_fork = (struct atfork_handler){.in_child = close_in_child, .owner = opened};
    opened->watcher = (struct watcher){
        .number = (uint32_t)epoch, .prefix = opened->prefix, .event = platform_event_create()};
    snprintf(opened->prefix, sizeof opened->prefix, "%s", prefix);
    if (opened->watcher.event < 0) {
        code = status_set_errno(status, errno, "can't make an event descriptor for a watch");
        goto free_watch;
    }
    code = add_watcher(opened, job, status);
    if (code)
        goto close_event;
    atfork_add(&opened->at_fork);
    *watch = opened;
    return status_ok(status);
close_event:
    socket_close(&opened->watcher.event);
free_watch:
    free(opened);
    return code;
}

hvd_code hvd_watch_open(hvd_rendezvous *rendezvous, const char *job, int32_t epoch, const char *prefix,
                        hvd_watch **watch, hvd_status *status)
{
    return assignments_watch(rendezvous, job, epoch, prefix, 0, watch, status);
}

void hvd_watch_close(hvd_watch *watch)
{
    if (!watch)
        return;
    if (server_lock(watch->server, NULL)) {
        struct watcher **at = &watch->epoch->watchers;
        while (*at != &watch->watcher)
            at = &(*at)->next;
        *at = watch->watcher.next;
        server_unlock(watch->server);
    } /* otherwise this is a child's copy */
    atfork_remove(&watch->at_fork);
    socket_close(&watch->watcher.event);
    wire_writer_free(&watch->value);
    free(watch);
}

/* Copies the next entry of the store. HVD_TIMED_OUT: there is none yet. */
static hvd_code read_next(struct hvd_watch *watch, hvd_status *status)
{
    struct store_value next;
    if (!server_lock(watch->server, status))
        return HVD_INVALID_ARGUMENT;
    hvd_code code = check_epoch(watch, status);
    bool found = !code && watch->watcher.number == watch->epoch->number &&
                 store_next(watch->epoch, watch->prefix, watch->after, &next);
    if (found) {
        wire_writer_free(&watch->value);
        wire_put_raw(&watch->value, next.bytes, next.length);
        if (!watch->value.failed) {
            snprintf(watch->key, sizeof watch->key, "%.*s", (int)next.key_length, (const char *)next.key);
            watch->after = next.number;
        }
    }
    server_unlock(watch->server);
    TRY(code);
    if (!found)
        return status_set(status, HVD_TIMED_OUT, "no key that begins with '%s' was put in time",
                          watch->prefix);
    return watch->value.failed ? status_no_memory(status) : HVD_OK;
}

hvd_code hvd_watch_next(hvd_watch *watch, double seconds, hvd_entry *entry, hvd_status *status)
{
    int64_t deadline = clock_after(seconds);
    hvd_code code;
    do {
        platform_event_clear(watch->watcher.event); /* first: a put may follow the look */
        code = read_next(watch, status);
    } while (code == HVD_TIMED_OUT && socket_wait(watch->watcher.event, POLLIN, deadline));
    if (code)
        return code;
    hvd_entry found = {.struct_size = entry->struct_size,
                       .key = watch->key + watch->skipped,
                       .value = watch->value.length ? watch->value.bytes : (const uint8_t *)"",
                       .length = watch->value.length,
                       .number = watch->after};
    memcpy(entry, &found, entry->struct_size < sizeof found ? entry->struct_size : sizeof found);
    return status_ok(status);
}

int hvd_watch_descriptor(const hvd_watch *watch)
{
    return watch->watcher.event;
}
