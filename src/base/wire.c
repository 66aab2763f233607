/* wire.c - little-endian numbers, strings and blobs in messages. No state; a reader or writer belongs to one
 * thread. */
#include "base/wire.h"

#include "base/pool.h"

#include <string.h>

#define KEPT_BYTES ((size_t)8 << 10) /* of an empty writer */

void wire_writer_free(struct wire_writer *writer)
{
    pages_free(writer->bytes, writer->capacity);
    *writer = (struct wire_writer){0};
}

bool wire_reserve(struct wire_writer *writer, size_t capacity)
{
    if (writer->failed || writer->capacity >= capacity)
        return !writer->failed;
    size_t larger = writer->capacity ? writer->capacity : 256;
    while (larger < capacity)
        larger *= 2;
    uint8_t *bytes = pages_resize(writer->bytes, writer->capacity, larger);
    if (!bytes) {
        writer->failed = true;
        return false;
    }
    writer->bytes = bytes;
    writer->capacity = larger;
    return true;
}

void wire_reset(struct wire_writer *writer)
{
    writer->length = 0;
    if (writer->capacity <= KEPT_BYTES)
        return;
    pages_free(writer->bytes, writer->capacity);
    writer->bytes = NULL;
    writer->capacity = 0;
}

void wire_put_blob(struct wire_writer *writer, const void *bytes, uint32_t length)
{
    wire_put_u32(writer, length);
    wire_put_raw(writer, bytes, length);
}

void wire_put_string(struct wire_writer *writer, const char *text)
{
    wire_put_blob(writer, text, (uint32_t)strlen(text));
}

struct wire_reader wire_reader_of(const void *bytes, size_t length)
{
    return (struct wire_reader){.bytes = bytes, .length = length};
}

const uint8_t *wire_get_blob(struct wire_reader *reader, uint32_t limit, uint32_t *length)
{
    uint32_t n = wire_get_u32(reader);
    if (n > limit)
        reader->failed = true;
    const uint8_t *at = wire_get_raw(reader, n);
    *length = at ? n : 0;
    return at;
}

bool wire_get_string(struct wire_reader *reader, char *text, size_t capacity)
{
    uint32_t length;
    const uint8_t *at = wire_get_blob(reader, (uint32_t)(capacity - 1), &length);
    if (at && memchr(at, '\0', length))
        reader->failed = true;
    if (!at || reader->failed) {
        text[0] = '\0';
        return false;
    }
    memcpy(text, at, length);
    text[length] = '\0';
    return true;
}

bool wire_done(const struct wire_reader *reader)
{
    return !reader->failed && reader->position == reader->length;
}
