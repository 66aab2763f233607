/* pieces.h - the bytes of an input as those of a connection, which delivers 1 to 7 of them at a time. One
 * thread. */
#ifndef HVD_TEST_FUZZ_PIECES_H
#define HVD_TEST_FUZZ_PIECES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

struct pieces {
    const uint8_t *bytes;
    size_t length, position;
};

/* Reads the next ones, at most `capacity`; 0 at the end. */
static inline ssize_t pieces_read(struct pieces *pieces, void *bytes, size_t capacity)
{
    size_t left = pieces->length - pieces->position, count = 1 + pieces->position % 7;
    count = count < left ? count : left;
    count = count < capacity ? count : capacity;
    memcpy(bytes, pieces->bytes + pieces->position, count);
    pieces->position += count;
    return (ssize_t)count;
}

#endif
