/* fake_links.c - pipes in memory in place of sockets: each call moves as many bytes as a seeded generator
 * draws. One thread calls everything, so that there are no locks. */
#include "fake_links.h"

#include <stdlib.h>
#include <string.h>

uint64_t random_state = 1;

uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

size_t random_below(size_t limit)
{
    return limit ? (size_t)(random_next() >> 11) % limit : 0;
}

static struct fake_link *fake_of(struct link *link)
{
    struct fake_link *fake = (struct fake_link *)link;
    fake->calls++;
    return fake;
}

/* A number of bytes that may move now: often all, sometimes few or none. */
static size_t some_of(size_t bytes)
{
    switch (random_below(4)) {
    case 0:
        return 0;
    case 1:
        return bytes ? 1 + random_below(bytes < 9 ? bytes : 9) : 0;
    default:
        return bytes;
    }
}

static size_t smallest(size_t a, size_t b)
{
    return a < b ? a : b;
}

static ssize_t fake_send(struct link *link, const struct iovec *parts, int count)
{
    struct fake_link *fake = fake_of(link);
    struct pipe *pipe = fake->out;
    if (fake->broken)
        return -1;
    size_t room = some_of(pipe->capacity - (pipe->written - pipe->read)), moved = 0;
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        assert_true(parts[i].iov_len > 0);
        for (size_t at = 0; at < parts[i].iov_len && moved < room; at++, moved++)
            pipe->bytes[pipe->written++ % PIPE_LIMIT] = ((const char *)parts[i].iov_base)[at];
    }
    return (ssize_t)moved;
}

static void fake_end_send(struct link *link)
{
    struct pipe *pipe = fake_of(link)->out;
    size_t previous = pipe->ended ? pipe->ends[(pipe->ended - 1) % MESSAGE_LIMIT] : 0;
    assert_true(pipe->written > previous); /* a message of no bytes is not sent at all */
    assert_true(pipe->ended - pipe->taken < MESSAGE_LIMIT);
    pipe->ends[pipe->ended++ % MESSAGE_LIMIT] = pipe->written;
}

static ssize_t fake_receive(struct link *link, const struct iovec *parts, int count)
{
    struct fake_link *fake = fake_of(link);
    struct pipe *pipe = fake->in;
    if (fake->broken)
        return -1;
    size_t ready = some_of(pipe->written - pipe->read), moved = 0;
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        assert_true(parts[i].iov_len > 0);
        for (size_t at = 0; at < parts[i].iov_len && moved < ready; at++, moved++)
            ((char *)parts[i].iov_base)[at] = pipe->bytes[pipe->read++ % PIPE_LIMIT];
    }
    return (ssize_t)moved;
}

static ssize_t fake_view(struct link *link, const void **data, size_t limit)
{
    struct fake_link *fake = fake_of(link);
    struct pipe *pipe = fake->in;
    if (fake->broken)
        return -1;
    assert_true(limit > 0);
    size_t ready = smallest(some_of(pipe->written - pipe->read), limit);
    char *to = pipe->viewed + (pipe->read - pipe->start) % 16;
    for (size_t at = 0; at < ready; at++)
        to[at] = pipe->bytes[(pipe->read + at) % PIPE_LIMIT];
    *data = to;
    return (ssize_t)ready;
}

static bool fake_consume(struct link *link, size_t n)
{
    struct pipe *pipe = fake_of(link)->in;
    memset(pipe->viewed, 0xee, sizeof pipe->viewed < n + 16 ? sizeof pipe->viewed : n + 16);
    pipe->read += n;
    return true;
}

static void fake_end_receive(struct link *link)
{
    struct pipe *pipe = fake_of(link)->in;
    assert_true(pipe->taken < pipe->ended);
    assert_int_equal(pipe->read, pipe->ends[pipe->taken++ % MESSAGE_LIMIT]);
    pipe->start = pipe->read;
}

static const struct link_operations fake_operations = {.send = fake_send,
                                                       .end_send = fake_end_send,
                                                       .receive = fake_receive,
                                                       .view = fake_view,
                                                       .consume = fake_consume,
                                                       .end_receive = fake_end_receive};

struct links *links_create(int size, size_t capacity)
{
    struct links *links = calloc(1, sizeof *links);
    links->size = size;
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++)
            for (int channel = 0; channel < WORLD_CHANNEL; channel++) {
                links->pipes[from][to][channel] = calloc(1, sizeof(struct pipe));
                links->pipes[from][to][channel]->capacity = capacity;
            }
    for (int rank = 0; rank < size; rank++)
        for (int peer = 0; peer < size; peer++)
            for (int channel = 0; channel < WORLD_CHANNEL; channel++)
                links->links[rank][peer][channel] = (struct fake_link){
                    .head = {.operations = &fake_operations, .peer = peer, .channel = channel},
                    .out = links->pipes[rank][peer][channel],
                    .in = links->pipes[peer][rank][channel]};
    return links;
}

void links_assert_empty(const struct links *links)
{
    for (int from = 0; from < links->size; from++)
        for (int to = 0; to < links->size; to++)
            for (int channel = 0; channel < WORLD_CHANNEL; channel++) {
                const struct pipe *pipe = links->pipes[from][to][channel];
                assert_int_equal(pipe->written, pipe->read);
                assert_int_equal(pipe->ended, pipe->taken);
            }
}

long links_calls(const struct links *links)
{
    long calls = 0;
    for (int rank = 0; rank < links->size; rank++)
        for (int peer = 0; peer < links->size; peer++)
            for (int channel = 0; channel < WORLD_CHANNEL; channel++)
                calls += links->links[rank][peer][channel].calls;
    return calls;
}

void links_free(struct links *links)
{
    for (int from = 0; from < links->size; from++)
        for (int to = 0; to < links->size; to++)
            for (int channel = 0; channel < WORLD_CHANNEL; channel++)
                free(links->pipes[from][to][channel]);
    free(links);
}
