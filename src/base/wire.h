/* wire.h - integers and strings to bytes and back; the only decoder of untrusted bytes.
 *
 * Little-endian, as the machine must be; no padding. A reader never reads past its end: the first bad read
 * makes it fail for good, yields zeros, and makes wire_done() false. A writer grows as it needs; out of
 * memory makes it fail for good in the same way. */
#ifndef HVD_BASE_WIRE_H
#define HVD_BASE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct wire_writer {
    uint8_t *bytes;
    size_t length, capacity;
    bool failed;
};

void wire_writer_free(struct wire_writer *writer); /* zeroed memory is a valid empty writer */
/* Makes room for `capacity` bytes in all; false when memory is out. */
bool wire_reserve(struct wire_writer *writer, size_t capacity);
/* Empties it; of its memory only what short messages need is kept. */
void wire_reset(struct wire_writer *writer);

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "integers are copied as they are");

/* Inline, since a submission writes a dozen integers. */
static inline void wire_put_raw(struct wire_writer *writer, const void *bytes, size_t length)
{
    if (writer->capacity - writer->length < length && !wire_reserve(writer, writer->length + length))
        return;
    if (length)
        memcpy(writer->bytes + writer->length, bytes, length);
    writer->length += length;
}

static inline void wire_put_u8(struct wire_writer *writer, uint8_t value)
{
    wire_put_raw(writer, &value, sizeof value);
}

static inline void wire_put_u16(struct wire_writer *writer, uint16_t value)
{
    wire_put_raw(writer, &value, sizeof value);
}

static inline void wire_put_u32(struct wire_writer *writer, uint32_t value)
{
    wire_put_raw(writer, &value, sizeof value);
}

static inline void wire_put_u64(struct wire_writer *writer, uint64_t value)
{
    wire_put_raw(writer, &value, sizeof value);
}

static inline void wire_put_f64(struct wire_writer *writer, double value)
{
    wire_put_raw(writer, &value, sizeof value);
}

void wire_put_blob(struct wire_writer *writer, const void *bytes, uint32_t length); /* length first */
void wire_put_string(struct wire_writer *writer, const char *text);                 /* as a blob */

struct wire_reader {
    const uint8_t *bytes;
    size_t length, position;
    bool failed;
};

struct wire_reader wire_reader_of(const void *bytes, size_t length);
/* Into the reader's bytes, or NULL. */
static inline const uint8_t *wire_get_raw(struct wire_reader *reader, size_t length)
{
    if (reader->failed || reader->length - reader->position < length) {
        reader->failed = true;
        return NULL;
    }
    const uint8_t *at = reader->bytes + reader->position;
    reader->position += length;
    return at;
}

static inline void wire_get_copy(struct wire_reader *reader, void *value, size_t width)
{
    const uint8_t *at = wire_get_raw(reader, width);
    if (at)
        memcpy(value, at, width);
}

static inline uint8_t wire_get_u8(struct wire_reader *reader)
{
    uint8_t value = 0;
    wire_get_copy(reader, &value, sizeof value);
    return value;
}

static inline uint16_t wire_get_u16(struct wire_reader *reader)
{
    uint16_t value = 0;
    wire_get_copy(reader, &value, sizeof value);
    return value;
}

static inline uint32_t wire_get_u32(struct wire_reader *reader)
{
    uint32_t value = 0;
    wire_get_copy(reader, &value, sizeof value);
    return value;
}

static inline uint64_t wire_get_u64(struct wire_reader *reader)
{
    uint64_t value = 0;
    wire_get_copy(reader, &value, sizeof value);
    return value;
}

static inline double wire_get_f64(struct wire_reader *reader)
{
    double value = 0;
    wire_get_copy(reader, &value, sizeof value);
    return value;
}

/* Length and place of a blob of at most `limit` bytes; NULL on failure. */
const uint8_t *wire_get_blob(struct wire_reader *reader, uint32_t limit, uint32_t *length);
/* Copies a string of at most `capacity` - 1 bytes, without NULs inside, and terminates it. */
bool wire_get_string(struct wire_reader *reader, char *text, size_t capacity);
/* True when nothing failed and everything was read. */
bool wire_done(const struct wire_reader *reader);

#endif
