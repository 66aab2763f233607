/* assignments.c - what a starter does with the rendezvous that it serves: one key for each slot of an epoch,
 * keys of its own, and watches for what is put. Calls block, with deadlines. One thread at a time uses a
 * client or a watch. */
#include "rendezvous/assignments.h"

#include "base/status.h"
#include "rendezvous/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PUBLISH_TIME 30.0 /* seconds; the server is a thread of this process */

/* Connects as the starter, which is no rank. */
static hvd_code enter(hvd_rendezvous *rendezvous, const char *job, int32_t epoch,
                      struct rendezvous_client **client, hvd_status *status)
{
    if (epoch < 0)
        return status_set(status, HVD_INVALID_ARGUMENT, "epoch %d is negative", (int)epoch);
    TRY(rendezvous_connect_to(rendezvous, clock_after(PUBLISH_TIME), client, status));
    hvd_code code = rendezvous_enter(*client, job, (uint32_t)epoch, -1, 0, NULL, status);
    if (code)
        rendezvous_close(*client);
    return code;
}

/* One that is too long stays too long. */
static const char *slot_key(const char *slot, char key[RENDEZVOUS_KEY_LIMIT + 1])
{
    snprintf(key, RENDEZVOUS_KEY_LIMIT + 1, "slot/%s", slot);
    return key;
}

static hvd_code publish(hvd_rendezvous *rendezvous, const char *job, int32_t epoch,
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
                                 : server_publish(rendezvous, job, (uint32_t)epoch, slot_key(slot, key),
                                                  value.bytes, value.length, status);
    wire_writer_free(&value);
    return code;
}

hvd_code hvd_rendezvous_assign(hvd_rendezvous *rendezvous, const char *job, int32_t epoch,
                               const hvd_assignment *assignments, int32_t count, hvd_status *status)
{
    int size = 0;
    if (epoch < 0)
        return status_set(status, HVD_INVALID_ARGUMENT, "epoch %d is negative", (int)epoch);
    for (int32_t i = 0; i < count; i++)
        size += assignments[i].rank >= 0;
    for (int32_t i = 0; i < count; i++)
        TRY(publish(rendezvous, job, epoch, &assignments[i], size, status));
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

hvd_code assignments_look_up(struct rendezvous_client *client, const char *slot, int64_t deadline,
                             struct assignment *assignment, hvd_status *status)
{
    char key[RENDEZVOUS_KEY_LIMIT + 1];
    struct wire_writer value = {0};
    hvd_code code = rendezvous_get(client, slot_key(slot, key), deadline, &value, status);
    if (code == HVD_TIMED_OUT)
        status_set(
            status, code,
            "slot '%s' has not got a place in this epoch (HOROVOD_EPOCH), and the time to start is over "
            "(HOROVOD_START_TIMEOUT); see the output of the starter",
            slot);
    else if (!code && !assignment_decode(assignment, value.bytes, value.length))
        code = status_set(status, HVD_REFUSED, "the place of slot '%s' is malformed", slot);
    else if (!code && assignment->rank < 0)
        code = status_set(
            status, HVD_REFUSED,
            "slot '%s' has no place among the %d ranks of this epoch: its starter has taken it out", slot,
            assignment->size);
    wire_writer_free(&value);
    return code;
}

/* ---- keys of the starter, and watches
 * ---------------------------------------------------------------------- */

struct hvd_watch {
    struct rendezvous_client *client;
    struct watched watched;
    char prefix[RENDEZVOUS_KEY_LIMIT + 1]; /* one that is too long stays longer than the limit */
    char key[RENDEZVOUS_KEY_LIMIT];        /* of the last entry */
};

hvd_code hvd_rendezvous_put(hvd_rendezvous *rendezvous, const char *job, int32_t epoch, const char *key,
                            const void *value, size_t length, hvd_status *status)
{
    if (epoch < 0)
        return status_set(status, HVD_INVALID_ARGUMENT, "epoch %d is negative", (int)epoch);
    TRY(server_publish(rendezvous, job, (uint32_t)epoch, key, value, length, status));
    return status_ok(status);
}

hvd_code hvd_watch_open(hvd_rendezvous *rendezvous, const char *job, int32_t epoch, const char *prefix,
                        hvd_watch **watch, hvd_status *status)
{
    struct hvd_watch *opened = calloc(1, sizeof *opened);
    if (!opened)
        return status_no_memory(status);
    snprintf(opened->prefix, sizeof opened->prefix, "%s", prefix);
    hvd_code code = enter(rendezvous, job, epoch, &opened->client, status);
    if (code) {
        free(opened);
        return code;
    }
    *watch = opened;
    return status_ok(status);
}

void hvd_watch_close(hvd_watch *watch)
{
    if (!watch)
        return;
    rendezvous_close(watch->client);
    free(watch);
}

hvd_code hvd_watch_next(hvd_watch *watch, double seconds, hvd_entry *entry, hvd_status *status)
{
    const uint8_t *value;
    size_t length;
    TRY(rendezvous_watch(watch->client, watch->prefix, clock_after(seconds), &watch->watched, watch->key,
                         &value, &length, status));
    hvd_entry found = {.struct_size = entry->struct_size,
                       .key = watch->key,
                       .value = value,
                       .length = length,
                       .number = watch->watched.after};
    memcpy(entry, &found, entry->struct_size < sizeof found ? entry->struct_size : sizeof found);
    return status_ok(status);
}

int hvd_watch_descriptor(const hvd_watch *watch)
{
    return rendezvous_descriptor(watch->client);
}
