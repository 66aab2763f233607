/* runs.h - lists of numbers as runs of equal ones, in messages and in memory. The lists are the numbers of
 * rows of the ranks' tensors, which are mostly equal. No state; a list belongs to one thread at a time.
 *
 * A run is a varint (7 bits a byte, the lowest first) of twice its number, plus one if the number occurs more
 * than once in a row; then a varint with how often follows. Runs are as long as possible, so equal lists have
 * equal bytes. */
#ifndef HVD_COORDINATE_RUNS_H
#define HVD_COORDINATE_RUNS_H

#include "base/wire.h"

/* A list in memory, with a count of references. */
struct runs {
    int references;
    uint32_t length; /* bytes */
    uint8_t bytes[];
};

struct runs *runs_create(const uint8_t *bytes, uint32_t length); /* NULL when memory is out */
struct runs *runs_share(struct runs *runs);                      /* NULL is fine */
void runs_release(struct runs *runs);                            /* NULL is fine */

/* Returns true if the bytes are a list of exactly `count` numbers, each at most INT64_MAX. */
bool runs_check(const uint8_t *bytes, size_t length, uint64_t count);

/* Reads a list that was checked. */
struct runs_reader {
    struct wire_reader wire;
    uint64_t number, left; /* of the current run: its number, and how many of it were not yet read */
};

struct runs_reader runs_reader_of(const uint8_t *bytes, size_t length);
uint64_t runs_get(struct runs_reader *reader);
void runs_skip(struct runs_reader *reader, uint64_t count);
/* Returns true if the next `count` numbers of both are equal. */
bool runs_equal(struct runs_reader a, struct runs_reader b, uint64_t count);

/* Appends a list to a message. */
struct runs_writer {
    struct wire_writer *wire;
    uint64_t number, count; /* of the last run, which may become longer */
};

void runs_put(struct runs_writer *writer, uint64_t number, uint64_t count);
void runs_copy(struct runs_writer *writer, struct runs_reader *reader, uint64_t count);
void runs_end(struct runs_writer *writer); /* writes the last run */

#endif
