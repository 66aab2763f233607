/* fake_links.h - links between the ranks of one test, all driven by one thread: a bounded pipe each way. A
 * seeded generator decides how many bytes move, or none, so that partial transfers end anywhere. Checks that
 * both ends see the same messages. */
#ifndef HVD_TEST_FAKE_LINKS_H
#define HVD_TEST_FAKE_LINKS_H

#include "test.h"
#include "transport/transport.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PIPE_LIMIT    8192 /* bytes */
#define MESSAGE_LIMIT 1024 /* in one pipe */
#define WORLD_RANKS   35
#define WORLD_SIZES   11 /* most tests try all up to this */
#define WORLD_CHANNEL 3

/* One generator for all tests of a program, which starts alike in each run; a test may set its state. */
extern uint64_t random_state;

uint64_t random_next(void);

size_t random_below(size_t limit);

struct pipe {
    size_t capacity, written, read;            /* since the beginning */
    size_t ends[MESSAGE_LIMIT];                /* where the messages end, as a ring */
    size_t ended, taken;                       /* messages */
    size_t start;                              /* of the message being read */
    _Alignas(16) char viewed[PIPE_LIMIT + 16]; /* what view shows, aligned as the message is */
    char bytes[PIPE_LIMIT];
};

struct fake_link {
    struct link head;
    struct pipe *out, *in;
    bool broken;
    long calls;
};

/* The links of every rank to every other one: links[rank][peer][channel]. */
struct links {
    int size;
    struct fake_link links[WORLD_RANKS][WORLD_RANKS][WORLD_CHANNEL];
    struct pipe *pipes[WORLD_RANKS][WORLD_RANKS][WORLD_CHANNEL]; /* [from][to] */
};

struct links *links_create(int size, size_t capacity);

/* All that was sent was received, message by message. */
void links_assert_empty(const struct links *links);

long links_calls(const struct links *links);

void links_free(struct links *links);

#endif
