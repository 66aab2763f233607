/* wire.c - see wire.h. No state; a reader or writer belongs to one thread. */
#include "base/wire.h"

#include "base/pool.h"

#include <string.h>

#define KEPT_BYTES ((size_t)4 << 10) /* of an empty writer */

void wire_writer_free(struct wire_writer *writer)
{
    pages_give(writer->bytes, writer->capacity);
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
    pages_give(writer->bytes, writer->capacity);
    writer->bytes = NULL;
    writer->capacity = 0;
}

static uint8_t *extend(struct wire_writer *writer, size_t length)
{
    if (!wire_reserve(writer, writer->length + length))
        return NULL;
    uint8_t *at = writer->bytes + writer->length;
    writer->length += length;
    return at;
}

static inline void put_integer(struct wire_writer *writer, uint64_t value, size_t width)
{
    uint8_t *at = extend(writer, width);
    for (size_t i = 0; at && i < width; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

void wire_put_u8(struct wire_writer *writer, uint8_t value)
{
    put_integer(writer, value, 1);
}

void wire_put_u16(struct wire_writer *writer, uint16_t value)
{
    put_integer(writer, value, 2);
}

void wire_put_u32(struct wire_writer *writer, uint32_t value)
{
    put_integer(writer, value, 4);
}

void wire_put_u64(struct wire_writer *writer, uint64_t value)
{
    put_integer(writer, value, 8);
}

void wire_put_f64(struct wire_writer *writer, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    wire_put_u64(writer, bits);
}

void wire_put_raw(struct wire_writer *writer, const void *bytes, size_t length)
{
    uint8_t *at = extend(writer, length);
    if (at && length)
        memcpy(at, bytes, length);
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

const uint8_t *wire_get_raw(struct wire_reader *reader, size_t length)
{
    if (reader->failed || reader->length - reader->position < length) {
        reader->failed = true;
        return NULL;
    }
    const uint8_t *at = reader->bytes + reader->position;
    reader->position += length;
    return at;
}

static uint64_t get_integer(struct wire_reader *reader, size_t width)
{
    const uint8_t *at = wire_get_raw(reader, width);
    uint64_t value = 0;
    for (size_t i = 0; at && i < width; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

uint8_t wire_get_u8(struct wire_reader *reader)
{
    return (uint8_t)get_integer(reader, 1);
}

uint16_t wire_get_u16(struct wire_reader *reader)
{
    return (uint16_t)get_integer(reader, 2);
}

uint32_t wire_get_u32(struct wire_reader *reader)
{
    return (uint32_t)get_integer(reader, 4);
}

uint64_t wire_get_u64(struct wire_reader *reader)
{
    return get_integer(reader, 8);
}

double wire_get_f64(struct wire_reader *reader)
{
    uint64_t bits = wire_get_u64(reader);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
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
