/* wire.h - encodes integers and strings as bytes and decodes them; the only decoder of untrusted bytes. No
 * state; a reader or writer belongs to one thread at a time.
 *
 * Little-endian, which the machine must be as well; no padding. A reader never reads past its end: after the
 * first bad read it has failed, returns zeros, and wire_done() is false. A writer grows as needed; when
 * memory is out it has failed in the same way. */
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
/* Empties it, and keeps only as much memory as short messages need. */
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

void wire_put_blob(struct wire_writer *writer, const void *bytes, uint32_t length); /* length first */
void wire_put_string(struct wire_writer *writer, const char *text);                 /* as a blob */

struct wire_reader {
    const uint8_t *bytes;
    size_t length, position;
    bool failed;
};

struct wire_reader wire_reader_of(const void *bytes, size_t length);
/* Returns a pointer into the reader's bytes, or NULL. */
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

/* wire_put_u8, wire_get_u8, ... */
#define WIRE_NUMBER(name, type)                                                                              \
    static inline void wire_put_##name(struct wire_writer *writer, type value)                               \
    {                                                                                                        \
        wire_put_raw(writer, &value, sizeof value);                                                          \
    }                                                                                                        \
    static inline type wire_get_##name(struct wire_reader *reader)                                           \
    {                                                                                                        \
        type value = 0;                                                                                      \
        const uint8_t *at = wire_get_raw(reader, sizeof value);                                              \
        if (at)                                                                                              \
            memcpy(&value, at, sizeof value);                                                                \
        return value;                                                                                        \
    }

WIRE_NUMBER(u8, uint8_t)
WIRE_NUMBER(u16, uint16_t)
WIRE_NUMBER(u32, uint32_t)
WIRE_NUMBER(u64, uint64_t)
WIRE_NUMBER(f64, double)
#undef WIRE_NUMBER

/* Returns the start of a blob of at most `limit` bytes, and its length; NULL on failure. */
const uint8_t *wire_get_blob(struct wire_reader *reader, uint32_t limit, uint32_t *length);
/* Copies a string of at most `capacity` - 1 bytes, without NULs inside, and terminates it. */
bool wire_get_string(struct wire_reader *reader, char *text, size_t capacity);
/* True when nothing failed and everything was read. */
bool wire_done(const struct wire_reader *reader);

#endif
