/* test_stream.c - frames over a socket pair: through a layer that changes all bytes, moves one at a time and
 * interrupts, through full and empty sockets, cut at every byte, and beyond the limit. */
#include "net/socket.h"
#include "random.h"
#include "test.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIMIT   100000
#define ROUNDS  200
#define PATIENT 10000000 /* calls until a test gives up */

struct layered { /* a layer over sockets, with what it would keep: keys, say */
    struct stream stream;
    uint64_t random;
    uint8_t key_in, key_out;
};

struct pair {
    struct layered a, b;
};

static int open_pair(void **state)
{
    static struct pair pair;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends))
        return -1;
    pair.a = (struct layered){.stream = {.io = &stream_socket, .fd = ends[0]}, .random = 1};
    pair.b = (struct layered){.stream = {.io = &stream_socket, .fd = ends[1]}, .random = 2};
    *state = &pair;
    return 0;
}

static int close_pair(void **state)
{
    struct pair *pair = *state;
    stream_free(&pair->a.stream);
    stream_free(&pair->b.stream);
    close(pair->a.stream.fd);
    close(pair->b.stream.fd);
    return 0;
}

const struct test_hooks test_hooks = {.before_each = open_pair, .after_each = close_pair};

static uint8_t byte_of(size_t round, size_t at)
{
    return (uint8_t)(round * 31 + at * 7 + (at >> 8));
}

static void put_frame(struct stream *stream, size_t round, size_t length)
{
    wire_put_u32(&stream->out, (uint32_t)length);
    for (size_t at = 0; at < length; at++)
        wire_put_u8(&stream->out, byte_of(round, at));
    assert_false(stream->out.failed);
}

static void check_frame(const uint8_t *frame, size_t length, size_t round, size_t expected)
{
    assert_int_equal(length, expected);
    for (size_t at = 0; at < length; at++) {
        if (frame[at] != byte_of(round, at))
            fail_msg("byte %zu of frame %zu, which has %zu, differs", at, round, length);
    }
}

/* ---- a layer that changes bytes, a few at a time ------------------------------------------------------- */

/* Bytes that the next call may move; 0, with errno: none. */
static size_t allowance(struct layered *layered)
{
    switch (random_below(&layered->random, 4)) {
    case 0:
        errno = EAGAIN;
        return 0;
    case 1:
        errno = EINTR;
        return 0;
    case 2:
        return 1;
    default:
        return (size_t)random_below(&layered->random, 1000) + 1;
    }
}

static ssize_t read_layered(struct stream *stream, void *bytes, size_t length)
{
    struct layered *layered = (struct layered *)stream;
    size_t most = allowance(layered);
    if (!most)
        return -1;
    ssize_t n = stream_socket.read(stream, bytes, length < most ? length : most);
    for (ssize_t i = 0; i < n; i++)
        ((uint8_t *)bytes)[i] ^= layered->key_in++;
    return n;
}

static ssize_t write_layered(struct stream *stream, const void *bytes, size_t length)
{
    struct layered *layered = (struct layered *)stream;
    uint8_t changed[1000];
    size_t most = allowance(layered);
    if (!most)
        return -1;
    most = most < length ? most : length;
    for (size_t i = 0; i < most; i++)
        changed[i] = ((const uint8_t *)bytes)[i] ^ (uint8_t)(layered->key_out + i);
    ssize_t n = stream_socket.write(stream, changed, most);
    layered->key_out += n > 0 ? (uint8_t)n : 0;
    return n;
}

static const struct stream_io layer = {read_layered, write_layered};

struct traffic { /* in one direction */
    struct stream *from, *to;
    uint64_t random;
    size_t put, got;
    size_t lengths[ROUNDS];
};

static void advance(struct traffic *traffic)
{
    const uint8_t *frame;
    size_t length;
    if (traffic->put < ROUNDS && random_chance(&traffic->random, 10)) {
        static const size_t most[] = {1, 5, 300, 6000, LIMIT};
        length = (size_t)random_below(&traffic->random, (int64_t)most[random_below(&traffic->random, 5)] + 1);
        traffic->lengths[traffic->put] = length;
        put_frame(traffic->from, traffic->put++, length);
    }
    assert_int_equal(stream_events(traffic->from), traffic->from->out.length ? POLLOUT : POLLIN);
    assert_in_range(stream_write(traffic->from), STREAM_DONE, STREAM_AGAIN);
    enum stream_outcome outcome = stream_read(traffic->to, LIMIT, &frame, &length);
    if (outcome == STREAM_DONE) {
        assert_true(traffic->got < traffic->put);
        check_frame(frame, length, traffic->got, traffic->lengths[traffic->got]);
        traffic->got++;
    } else {
        assert_int_equal(outcome, STREAM_AGAIN);
    }
}

/* Both directions at once, while the kernel accepts few bytes at a time. */
static void run_traffic(struct pair *pair)
{
    struct stream *a = &pair->a.stream, *b = &pair->b.stream;
    struct traffic ways[] = {{.from = a, .to = b, .random = 3}, {.from = b, .to = a, .random = 4}};
    int little = 4096, calls = 0;
    for (int i = 0; i < 2; i++)
        setsockopt(ways[i].from->fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
    while ((ways[0].got < ROUNDS || ways[1].got < ROUNDS) && ++calls < PATIENT) {
        advance(&ways[0]);
        advance(&ways[1]);
    }
    if (calls == PATIENT)
        fail_msg("%zu and %zu of %d frames have come", ways[0].got, ways[1].got, ROUNDS);
    assert_int_equal(a->out.length + b->out.length, 0);
}

TEST(frames_go_both_ways_over_sockets)
{
    run_traffic(*state);
}

TEST(frames_go_both_ways_through_a_layer)
{
    struct pair *pair = *state;
    pair->a.stream.io = pair->b.stream.io = &layer;
    run_traffic(pair);
}

TEST(a_byte_at_a_time_is_enough)
{
    struct pair *pair = *state;
    struct stream *from = &pair->a.stream, *to = &pair->b.stream;
    const uint8_t *frame;
    size_t length;
    put_frame(from, 0, 3);
    put_frame(from, 1, 0);
    put_frame(from, 2, 300);
    size_t whole[] = {7, 11, 315}, got = 0;
    for (size_t at = 0; at < from->out.length; at++) {
        assert_int_equal(stream_read(to, LIMIT, &frame, &length), STREAM_AGAIN);
        assert_int_equal(stream_socket.write(from, from->out.bytes + at, 1), 1);
        if (at + 1 < whole[got])
            continue;
        assert_int_equal(stream_read(to, LIMIT, &frame, &length), STREAM_DONE);
        check_frame(frame, length, got, (size_t[]){3, 0, 300}[got]);
        got++;
    }
    assert_int_equal(got, 3);
}

TEST(nothing_is_read_beyond_what_is_wanted)
{
    struct pair *pair = *state;
    struct stream *from = &pair->a.stream, *to = &pair->b.stream;
    const uint8_t *frame;
    size_t length;
    wire_put_raw(&from->out, "hello", 5);
    put_frame(from, 0, 9);
    assert_int_equal(stream_write(from), STREAM_DONE);
    assert_int_equal(stream_fill(to, 2), STREAM_DONE);
    assert_int_equal(stream_fill(to, 5), STREAM_DONE);
    assert_int_equal(to->in.length, 5);
    assert_memory_equal(to->in.bytes, "hello", 5);
    wire_reset(&to->in);
    assert_int_equal(stream_read(to, LIMIT, &frame, &length), STREAM_DONE);
    check_frame(frame, length, 0, 9);
    assert_int_equal(stream_fill(from, 1), STREAM_AGAIN);
}

/* ---- ends ---------------------------------------------------------------------------------------------- */

static void check_cut_at(struct pair *pair, size_t at)
{
    enum { FIRST = 20, SECOND = 30 };
    struct stream *from = &pair->a.stream, *to = &pair->b.stream;
    const uint8_t *frame;
    size_t length;
    put_frame(from, 0, FIRST);
    put_frame(from, 1, SECOND);
    assert_int_equal(stream_socket.write(from, from->out.bytes, at), at);
    shutdown(from->fd, SHUT_WR);
    size_t whole = at < 4 + FIRST ? 0 : at < 4 + FIRST + 4 + SECOND ? 1 : 2;
    for (size_t round = 0; round < whole; round++) {
        assert_int_equal(stream_read(to, LIMIT, &frame, &length), STREAM_DONE);
        check_frame(frame, length, round, round ? SECOND : FIRST);
    }
    for (int again = 0; again < 3; again++)
        assert_int_equal(stream_read(to, LIMIT, &frame, &length), STREAM_ENDED);
}

TEST(a_cut_is_found_at_every_byte)
{
    close_pair(state);
    for (size_t at = 1; at <= 58; at++) {
        assert_int_equal(open_pair(state), 0);
        check_cut_at(*state, at);
        close_pair(state);
    }
    assert_int_equal(open_pair(state), 0);
}

TEST(a_lost_peer_is_no_end)
{
    struct pair *pair = *state;
    struct stream *from = &pair->a.stream, *to = &pair->b.stream;
    const uint8_t *frame;
    size_t length;
    put_frame(from, 0, 5);
    put_frame(to, 0, 5);
    assert_int_equal(stream_write(to), STREAM_DONE);
    close(from->fd); /* with bytes that it has not read */
    from->fd = -1;
    assert_int_equal(stream_read(to, LIMIT, &frame, &length), STREAM_FAILED);
    assert_int_equal(errno, ECONNRESET);
    put_frame(to, 1, 5);
    assert_int_equal(stream_write(to), STREAM_FAILED);
    assert_int_equal(errno, EPIPE);
    assert_int_equal(stream_events(to), POLLOUT); /* the bytes that were not read are still there */
}

TEST(a_full_socket_is_no_end)
{
    struct pair *pair = *state;
    struct stream *from = &pair->a.stream, *to = &pair->b.stream;
    const uint8_t *frame;
    size_t length, put = 0;
    while (stream_write(from) == STREAM_DONE)
        put_frame(from, put++, 6000);
    for (int storm = 0; storm < 1000; storm++) {
        size_t sent = from->sent;
        assert_int_equal(stream_write(from), STREAM_AGAIN);
        assert_int_equal(from->sent, sent);
        assert_int_equal(stream_events(from), POLLOUT);
    }
    for (size_t got = 0; got < put; got++) {
        enum stream_outcome outcome = stream_read(to, LIMIT, &frame, &length);
        if (outcome == STREAM_AGAIN) { /* of the last one a part was not sent */
            assert_int_equal(stream_write(from), STREAM_DONE);
            outcome = stream_read(to, LIMIT, &frame, &length);
        }
        assert_int_equal(outcome, STREAM_DONE);
        check_frame(frame, length, got, 6000);
    }
    for (int storm = 0; storm < 1000; storm++)
        assert_int_equal(stream_read(to, LIMIT, &frame, &length), STREAM_AGAIN);
}

/* ---- limits -------------------------------------------------------------------------------------------- */

TEST(a_frame_beyond_the_limit_costs_no_memory)
{
    struct pair *pair = *state;
    struct stream *from = &pair->a.stream, *to = &pair->b.stream;
    static const uint32_t lengths[] = {LIMIT + 1, INT32_MAX, UINT32_MAX};
    const uint8_t *frame;
    size_t length;
    put_frame(from, 0, 100);
    for (size_t i = 0; i < 3; i++)
        wire_put_u32(&from->out, lengths[i]);
    put_frame(from, 1, 101);
    assert_int_equal(stream_write(from), STREAM_DONE);
    assert_int_equal(stream_read(to, 100, &frame, &length), STREAM_DONE); /* the very limit */
    check_frame(frame, length, 0, 100);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(stream_read(to, LIMIT, &frame, &length), STREAM_TOO_LONG);
        assert_int_equal(length, lengths[i]);
        assert_in_range(to->in.capacity, 0, 4096);
    }
    /* Only the header was consumed, so that a length may mean something else to the user. */
    assert_int_equal(stream_read(to, LIMIT, &frame, &length), STREAM_DONE);
    check_frame(frame, length, 1, 101);
}

/* The memory of a large frame is freed by the next call; an idle stream is small. */
TEST(large_frames_leave_no_memory)
{
    struct pair *pair = *state;
    struct stream *from = &pair->a.stream, *to = &pair->b.stream;
    const uint8_t *frame;
    size_t length;
    enum stream_outcome outcome;
    int calls = 0;
    put_frame(from, 0, LIMIT);
    while ((outcome = stream_read(to, LIMIT, &frame, &length)) == STREAM_AGAIN && ++calls < PATIENT)
        assert_in_range(stream_write(from), STREAM_DONE, STREAM_AGAIN);
    assert_int_equal(outcome, STREAM_DONE);
    check_frame(frame, length, 0, LIMIT);
    assert_int_equal(stream_read(to, LIMIT, &frame, &length), STREAM_AGAIN);
    assert_in_range(from->out.capacity + to->in.capacity, 0, 8192);
}

/* Some bytes always wait; those that have been written are dropped nevertheless. */
TEST(what_is_never_all_written_leaves_no_memory)
{
    struct pair *pair = *state;
    struct stream *from = &pair->a.stream, *to = &pair->b.stream;
    const uint8_t *frame;
    size_t length, put = 0;
    while (stream_write(from) == STREAM_DONE)
        put_frame(from, put++, 6000);
    for (int more = 0; more < 100; more++)
        put_frame(from, put++, 6000);
    for (size_t got = 0; got < 10000; got++) {
        put_frame(from, put++, 6000);
        assert_in_range(stream_write(from), STREAM_DONE, STREAM_AGAIN);
        assert_int_equal(stream_read(to, LIMIT, &frame, &length), STREAM_DONE);
        check_frame(frame, length, got, 6000);
    }
    assert_true(from->out.length > from->sent);
    assert_in_range(from->out.capacity, 0, 2 << 20);
}
