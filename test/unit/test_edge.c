/* test_edge.c - an edge when memory is out, and that only bytes are a sign of life. test/fuzz/fuzz_edge.c
 * tests its stream in pieces of any size. */
#include "engine/edge.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { LARGE = 8 << 20 };

/* A link that gives its bytes and keeps what it is given. */
struct source {
    struct link link;
    const uint8_t *bytes;
    size_t length;
    uint8_t sent[64];
    size_t sent_length;
};

static ssize_t receive(struct link *link, const struct iovec *parts, int count)
{
    struct source *source = (struct source *)link;
    (void)count;
    size_t length = parts->iov_len < source->length ? parts->iov_len : source->length;
    memcpy(parts->iov_base, source->bytes, length);
    source->bytes += length;
    source->length -= length;
    return (ssize_t)length;
}

static ssize_t send_all(struct link *link, const struct iovec *parts, int count)
{
    struct source *source = (struct source *)link;
    (void)count;
    assert_true(parts->iov_len <= sizeof source->sent - source->sent_length);
    memcpy(source->sent + source->sent_length, parts->iov_base, parts->iov_len);
    source->sent_length += parts->iov_len;
    return (ssize_t)parts->iov_len;
}

static const struct link_operations operations = {.receive = receive, .send = send_all};

/* AddressSanitizer needs pages itself. */
static void skip_if_sanitized(void)
{
#ifdef __SANITIZE_ADDRESS__
    skip();
#endif
}

/* The process gets no more pages until it is given the limit again that it had. */
static struct rlimit limit_memory(void)
{
    struct rlimit had;
    assert_int_equal(getrlimit(RLIMIT_AS, &had), 0);
    assert_int_equal(setrlimit(RLIMIT_AS, &(struct rlimit){1 << 20, had.rlim_max}), 0);
    return had;
}

TEST(a_message_without_memory_is_lost_as_a_whole)
{
    skip_if_sanitized();
    static const uint8_t bytes[] = "one";
    struct source source = {.link = {.operations = &operations}};
    struct edge edge, *unsent = NULL;
    edge_init(&edge, 1, &source.link, &unsent);
    edge_put(&edge, bytes, 3);
    struct rlimit had = limit_memory();
    edge_put(&edge, bytes, LARGE); /* which are not read */
    edge_put(&edge, bytes, 2);     /* the following bytes would be meaningless without it */
    assert_int_equal(setrlimit(RLIMIT_AS, &had), 0);
    assert_true(edge_starved(&edge));
    assert_false(edge_starved(&edge));
    edge_put(&edge, bytes, 1); /* why it was lost */
    assert_true(edges_flush(&unsent));
    assert_null(unsent);
    assert_int_equal(source.sent_length, 12);
    assert_memory_equal(source.sent, "\3\0\0\0one\1\0\0\0o", 12);
    edge_fini(&edge);
}

TEST(a_message_that_memory_is_missing_for_waits)
{
    skip_if_sanitized();
    uint8_t *bytes = calloc(1, LARGE + 4);
    const uint8_t *message;
    size_t length;
    memcpy(bytes, "\0\0\200\0", 4); /* LARGE */
    struct source source = {.link = {.operations = &operations}, .bytes = bytes, .length = LARGE + 4};
    struct edge edge, *unsent = NULL;
    edge_init(&edge, 1, &source.link, &unsent);
    struct rlimit had = limit_memory();
    assert_int_equal(edge_next(&edge, &message, &length), EDGE_NOTHING);
    assert_int_equal(setrlimit(RLIMIT_AS, &had), 0);
    assert_true(edge_starved(&edge));
    assert_int_equal(edge_next(&edge, &message, &length), EDGE_MESSAGE);
    assert_int_equal(length, LARGE);
    assert_false(edge_starved(&edge));
    edge_fini(&edge);
    free(bytes);
}

TEST(only_bytes_are_a_sign_of_life)
{
    static const uint8_t bytes[] = "\5\0\0\0one";
    const uint8_t *message;
    size_t length;
    struct source source = {.link = {.operations = &operations}, .bytes = bytes, .length = 6};
    struct edge edge, *unsent = NULL;
    edge_init(&edge, 1, &source.link, &unsent);
    assert_int_equal(edge_next(&edge, &message, &length), EDGE_NOTHING);
    assert_true(edge.alive);
    edge.alive = false; /* and the peer is stopped inside its message */
    assert_int_equal(edge_next(&edge, &message, &length), EDGE_NOTHING);
    assert_false(edge.alive);
    source.length = 1;
    assert_int_equal(edge_next(&edge, &message, &length), EDGE_NOTHING);
    assert_true(edge.alive);
    edge_fini(&edge);
}
