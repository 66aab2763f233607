/* record.c - see record.h. */
#include "transport/record.h"

#include "base/status.h"

#include <stdio.h>

void record_encode(struct wire_writer *writer, const struct record *record)
{
    wire_put_u64(writer, (uint64_t)record->process);
    wire_put_string(writer, record->host);
    wire_put_string(writer, record->host_identity);
    wire_put_string(writer, record->local_name);
    wire_put_string(writer, record->address);
    wire_put_u16(writer, (uint16_t)record->port);
}

bool record_decode(struct record *record, const uint8_t *bytes, size_t length)
{
    struct wire_reader reader = wire_reader_of(bytes, length);
    record->process = (long)wire_get_u64(&reader);
    wire_get_string(&reader, record->host, sizeof record->host);
    wire_get_string(&reader, record->host_identity, sizeof record->host_identity);
    wire_get_string(&reader, record->local_name, sizeof record->local_name);
    wire_get_string(&reader, record->address, sizeof record->address);
    record->port = wire_get_u16(&reader);
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
