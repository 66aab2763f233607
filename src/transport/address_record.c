/* address_record.c - encodes, publishes and fetches the addresses of ranks; and publishes that one has
 * failed. */
#include "transport/address_record.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void address_record_free(struct address_record *record)
{
    for (int row = 0; row < TRANSPORT_LIMIT; row++)
        free(record->addresses[row]);
    *record = (struct address_record){0};
}

/* ---- addresses ---------------------------------------------------------------------------------------- */

const char *address_record_next(const char *address)
{
    const char *end = strchr(address, '\n');
    return end ? end + 1 : NULL;
}

/* A port follows the first space. */
bool address_record_has_address(const char *lines, const char *address)
{
    size_t length = strcspn(address, " \n");
    for (; lines; lines = address_record_next(lines))
        if (strcspn(lines, " \n") == length && strncmp(lines, address, length) == 0)
            return true;
    return false;
}

const char *address_record_get(const struct address_record *theirs, const struct address_record *mine,
                               int row, int index)
{
    for (int shared = 0; shared < 2; shared++)
        for (const char *line = theirs->addresses[row]; line; line = address_record_next(line))
            if (address_record_has_address(mine->addresses[row], line) == shared && index-- == 0)
                return line;
    return NULL;
}

const char *address_record_of_peer(const struct peer *peer, int row, int index)
{
    const struct mesh *hub = peer->mesh->hub;
    return address_record_get(&hub->records[peer->rank], &hub->records[hub->rank], row, index);
}

/* ---- the encoded form --------------------------------------------------------------------------------- */

void address_record_encode(struct wire_writer *writer, const struct address_record *record)
{
    wire_put_u64(writer, (uint64_t)record->process);
    wire_put_string(writer, record->host);
    for (int row = 0; transport_at(row); row++) {
        if (!record->addresses[row])
            continue;
        wire_put_string(writer, transport_at(row)->name);
        wire_put_string(writer, record->addresses[row]);
    }
}

/* Returns a row past the last one if this rank does not know the transport. */
static int find_row(const char *name)
{
    int row = 0;
    while (transport_at(row) && strcmp(transport_at(row)->name, name) != 0)
        row++;
    return row;
}

bool address_record_decode(struct address_record *record, const uint8_t *bytes, size_t length)
{
    struct wire_reader reader = wire_reader_of(bytes, length);
    address_record_free(record);
    record->process = (long)wire_get_u64(&reader);
    wire_get_string(&reader, record->host, sizeof record->host);
    while (!reader.failed && !wire_done(&reader)) {
        char name[32], addresses[TRANSPORT_ADDRESSES];
        wire_get_string(&reader, name, sizeof name);
        wire_get_string(&reader, addresses, sizeof addresses);
        int row = reader.failed ? TRANSPORT_LIMIT : find_row(name);
        if (row == TRANSPORT_LIMIT || !transport_at(row))
            continue;
        free(record->addresses[row]);
        record->addresses[row] = strdup(addresses);
        reader.failed |= !record->addresses[row];
    }
    return wire_done(&reader);
}

static hvd_code publish(const struct mesh_config *config, const char *kind, int rank,
                        const struct wire_writer *value, hvd_status *status)
{
    char key[RENDEZVOUS_KEY_LIMIT];
    snprintf(key, sizeof key, "%s/%d", kind, rank);
    return value->failed ? status_no_memory(status)
                         : rendezvous_put(config->rendezvous, key, value->bytes, value->length, status);
}

static hvd_code fetch(const struct mesh_config *config, const char *kind, int rank, int64_t deadline,
                      struct wire_writer *value, hvd_status *status)
{
    char key[RENDEZVOUS_KEY_LIMIT];
    snprintf(key, sizeof key, "%s/%d", kind, rank);
    return rendezvous_get(config->rendezvous, key, deadline, value, status);
}

static hvd_code malformed(int rank, hvd_status *status)
{
    return status_set(
        status, HVD_REFUSED,
        "what rank %d has published can't be read; install the same release of horovod everywhere", rank);
}

hvd_code address_record_publish(const struct mesh_config *config, const struct address_record *record,
                                hvd_status *status)
{
    struct wire_writer value = {0};
    address_record_encode(&value, record);
    hvd_code code = publish(config, "mesh", (int)config->settings->rank, &value, status);
    wire_writer_free(&value);
    return code;
}

hvd_code address_record_fetch(const struct mesh_config *config, int rank, int64_t deadline,
                              struct address_record *record, hvd_status *status)
{
    struct wire_writer value = {0};
    hvd_code code = fetch(config, "mesh", rank, deadline, &value, status);
    if (!code && !address_record_decode(record, value.bytes, value.length))
        code = malformed(rank, status);
    wire_writer_free(&value);
    return code;
}

static int table_length(const struct mesh_config *config, int first)
{
    int left = (int)config->settings->size - first;
    return left < ADDRESS_RECORD_TABLE ? left : ADDRESS_RECORD_TABLE;
}

hvd_code address_record_publish_table(const struct mesh_config *config, int first,
                                      const struct address_record *records, hvd_status *status)
{
    struct wire_writer table = {0}, one = {0};
    for (int i = 0; i < table_length(config, first); i++) {
        wire_reset(&one);
        address_record_encode(&one, &records[i]);
        wire_put_blob(&table, one.bytes, (uint32_t)one.length);
        table.failed |= one.failed;
    }
    hvd_code code = publish(config, "meshes", first, &table, status);
    wire_writer_free(&one);
    wire_writer_free(&table);
    return code;
}

bool address_records_decode(struct address_record *records, int count, const uint8_t *bytes, size_t length)
{
    struct wire_reader reader = wire_reader_of(bytes, length);
    bool whole = true;
    for (int i = 0; whole && i < count; i++) {
        uint32_t own = 0;
        const uint8_t *one = wire_get_blob(&reader, RENDEZVOUS_VALUE_LIMIT, &own);
        whole = one && address_record_decode(&records[i], one, own);
    }
    return whole && wire_done(&reader);
}

hvd_code address_record_fetch_table(const struct mesh_config *config, int first, int64_t deadline,
                                    struct address_record *records, hvd_status *status)
{
    struct wire_writer table = {0};
    hvd_code code = fetch(config, "meshes", first, deadline, &table, status);
    if (!code && !address_records_decode(records, table_length(config, first), table.bytes, table.length))
        code = malformed(0, status);
    wire_writer_free(&table);
    return code;
}

/* ---- failures ----------------------------------------------------------------------------------------- */

#define FAILURE_KEY "mesh/failed"

void address_record_fail(const struct mesh_config *config, const hvd_status *cause)
{
    char text[sizeof cause->text];
    int length = snprintf(text, sizeof text, "rank %lld: %.*s", (long long)config->settings->rank,
                          (int)sizeof text - 64, cause->text);
    rendezvous_put(config->rendezvous, FAILURE_KEY, text, (size_t)length, NULL);
}

hvd_code address_record_failure(const struct mesh_config *config, hvd_status *status)
{
    struct wire_writer value = {0};
    hvd_code code = rendezvous_get(config->rendezvous, FAILURE_KEY, 0, &value, NULL);
    if (!code)
        status_set(status, HVD_SYSTEM, "another rank can't connect; %.*s", (int)value.length,
                   (const char *)value.bytes);
    wire_writer_free(&value);
    return code ? HVD_OK : HVD_SYSTEM;
}
