/* record.c - see record.h. */
#include "transport/record.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

void record_encode(struct wire_writer *writer, const struct record *record)
{
    wire_put_u64(writer, (uint64_t)record->process);
    wire_put_string(writer, record->host);
    for (int row = 0; transport_at(row); row++) {
        if (!record->addresses[row][0])
            continue;
        wire_put_string(writer, transport_at(row)->name);
        wire_put_string(writer, record->addresses[row]);
    }
}

/* What this rank does not know it can't use. */
static int find_row(const char *name)
{
    int row = 0;
    while (transport_at(row) && strcmp(transport_at(row)->name, name) != 0)
        row++;
    return row;
}

bool record_decode(struct record *record, const uint8_t *bytes, size_t length)
{
    struct wire_reader reader = wire_reader_of(bytes, length);
    *record = (struct record){.process = (long)wire_get_u64(&reader)};
    wire_get_string(&reader, record->host, sizeof record->host);
    while (!reader.failed && !wire_done(&reader)) {
        char name[32], address[TRANSPORT_ADDRESS];
        wire_get_string(&reader, name, sizeof name);
        wire_get_string(&reader, address, sizeof address);
        int row = reader.failed ? TRANSPORT_LIMIT : find_row(name);
        if (row < TRANSPORT_LIMIT && transport_at(row))
            memcpy(record->addresses[row], address, sizeof address);
    }
    return wire_done(&reader);
}

static void key_of(const struct mesh_config *config, int rank, char *key, size_t capacity)
{
    snprintf(key, capacity, "mesh/%u/%d/%s", config->generation, rank, config->settings->job);
}

hvd_code record_publish(const struct mesh_config *config, const struct record *record, hvd_status *status)
{
    char key[RENDEZVOUS_KEY_LIMIT];
    struct wire_writer writer = {0};
    record_encode(&writer, record);
    key_of(config, (int)config->settings->rank, key, sizeof key);
    hvd_code code = writer.failed
                        ? status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job")
                        : rendezvous_put(config->rendezvous, key, writer.bytes, writer.length, status);
    wire_writer_free(&writer);
    return code;
}

hvd_code record_fetch(const struct mesh_config *config, int rank, int64_t deadline, struct record *record,
                      hvd_status *status)
{
    char key[RENDEZVOUS_KEY_LIMIT];
    struct wire_writer value = {0};
    key_of(config, rank, key, sizeof key);
    hvd_code code = rendezvous_get(config->rendezvous, key, deadline, &value, status);
    if (!code && !record_decode(record, value.bytes, value.length))
        code = status_set(status, HVD_REFUSED,
                          "what rank %d has published can't be read; install the same release of horovod "
                          "everywhere",
                          rank);
    wire_writer_free(&value);
    return code;
}

/* ---- failures ----------------------------------------------------------------------------------------- */

static void failure_key(const struct mesh_config *config, char *key, size_t capacity)
{
    snprintf(key, capacity, "mesh/%u/failed/%s", config->generation, config->settings->job);
}

void record_fail(const struct mesh_config *config, const hvd_status *cause)
{
    char key[RENDEZVOUS_KEY_LIMIT], text[sizeof cause->text];
    failure_key(config, key, sizeof key);
    int length = snprintf(text, sizeof text, "rank %lld: %.*s", (long long)config->settings->rank,
                          (int)sizeof text - 64, cause->text);
    rendezvous_put(config->rendezvous, key, text, (size_t)length, NULL);
}

hvd_code record_failure(const struct mesh_config *config, hvd_status *status)
{
    char key[RENDEZVOUS_KEY_LIMIT];
    struct wire_writer value = {0};
    failure_key(config, key, sizeof key);
    hvd_code code = rendezvous_get(config->rendezvous, key, 0, &value, NULL);
    if (!code)
        status_set(status, HVD_SYSTEM, "another rank can't connect; %.*s", (int)value.length,
                   (const char *)value.bytes);
    wire_writer_free(&value);
    return code ? HVD_OK : HVD_SYSTEM;
}
