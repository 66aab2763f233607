/* runs.c - lists of numbers as runs of equal ones. No state; a list belongs to one thread at a time. */
#include "coordinate/runs.h"

#include <stdlib.h>

#define VARINT_LIMIT 10 /* bytes of a 64-bit number */

struct runs *runs_create(const uint8_t *bytes, uint32_t length)
{
    struct runs *runs = malloc(sizeof *runs + length);
    if (!runs)
        return NULL;
    *runs = (struct runs){.references = 1, .length = length};
    memcpy(runs->bytes, bytes, length);
    return runs;
}

struct runs *runs_share(struct runs *runs)
{
    if (runs)
        runs->references++;
    return runs;
}

void runs_release(struct runs *runs)
{
    if (runs && !--runs->references)
        free(runs);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* A number of more bytes than it needs is malformed. */
static uint64_t get_varint(struct wire_reader *wire)
{
    uint64_t number = 0;
    for (int i = 0; i < VARINT_LIMIT; i++) {
        uint8_t byte = wire_get_u8(wire);
        number |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte & 0x80)
            continue;
        /* The tenth byte has the highest bit of the number. */
        wire->failed |= (i && !byte) || (i == VARINT_LIMIT - 1 && byte > 1);
        return number;
    }
    wire->failed = true;
    return 0;
}

struct runs_reader runs_reader_of(const uint8_t *bytes, size_t length)
{
    return (struct runs_reader){.wire = wire_reader_of(bytes, length)};
}

static void next_run(struct runs_reader *reader)
{
    uint64_t head = get_varint(&reader->wire);
    reader->number = head >> 1;
    reader->left = head & 1 ? get_varint(&reader->wire) : 1;
    reader->wire.failed |= (head & 1) && reader->left < 2;
}

bool runs_check(const uint8_t *bytes, size_t length, uint64_t count)
{
    struct runs_reader reader = runs_reader_of(bytes, length);
    uint64_t before = UINT64_MAX;
    while (count && !reader.wire.failed) {
        next_run(&reader);
        if (reader.left > count || reader.number == before)
            return false;
        count -= reader.left;
        before = reader.number;
    }
    return wire_done(&reader.wire);
}

/* Makes a run current that has unread numbers. Beyond the end, which callers of checked lists do not reach,
 * the list goes on with zeros. */
static void advance(struct runs_reader *reader)
{
    if (reader->left)
        return;
    next_run(reader);
    if (reader->wire.failed)
        *reader = (struct runs_reader){.wire = {.failed = true}, .left = UINT64_MAX};
}

uint64_t runs_get(struct runs_reader *reader)
{
    advance(reader);
    reader->left--;
    return reader->number;
}

/* Makes a run current, and returns how many of its numbers are among the next `count`. */
static uint64_t part_of_run(struct runs_reader *reader, uint64_t count)
{
    advance(reader);
    return reader->left < count ? reader->left : count;
}

void runs_skip(struct runs_reader *reader, uint64_t count)
{
    while (count) {
        uint64_t part = part_of_run(reader, count);
        reader->left -= part;
        count -= part;
    }
}

bool runs_equal(struct runs_reader a, struct runs_reader b, uint64_t count)
{
    while (count) {
        uint64_t part = part_of_run(&a, part_of_run(&b, count));
        if (a.number != b.number)
            return false;
        a.left -= part;
        b.left -= part;
        count -= part;
    }
    return true;
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static void put_varint(struct wire_writer *wire, uint64_t number)
{
    for (; number >= 0x80; number >>= 7)
        wire_put_u8(wire, (uint8_t)(number | 0x80));
    wire_put_u8(wire, (uint8_t)number);
}

void runs_end(struct runs_writer *writer)
{
    if (!writer->count)
        return;
    put_varint(writer->wire, writer->number << 1 | (writer->count > 1));
    if (writer->count > 1)
        put_varint(writer->wire, writer->count);
    writer->count = 0;
}

void runs_put(struct runs_writer *writer, uint64_t number, uint64_t count)
{
    if (writer->number != number)
        runs_end(writer);
    writer->number = number;
    writer->count += count;
}

void runs_copy(struct runs_writer *writer, struct runs_reader *reader, uint64_t count)
{
    while (count) {
        uint64_t part = part_of_run(reader, count);
        runs_put(writer, reader->number, part);
        reader->left -= part;
        count -= part;
    }
}
