/* test_sockets.c - what the kernel says of connections. */
#include "../../launch/sockets.h"
#include "base/clock.h"
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 100000 };

struct pair {
    int ends[2];
    uint16_t ports[2];
};

static uint16_t port_of(int fd)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    return ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                              : ((struct sockaddr_in6 *)&address)->sin6_port);
}

/* A connection over IPv4, whose listener takes IPv6 as well: its two ends are of different families. */
static struct pair connect_pair(void)
{
    struct pair pair;
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET6, SOCK_STREAM, 0), both = 0;
    assert_int_equal(setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof both), 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&any, sizeof any), 0);
    assert_int_equal(listen(listener, 1), 0);
    to.sin_port = htons(port_of(listener));
    pair.ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(pair.ends[0], (struct sockaddr *)&to, sizeof to), 0);
    pair.ends[1] = accept(listener, NULL, NULL);
    assert_true(pair.ends[1] >= 0);
    close(listener);
    for (int i = 0; i < 2; i++)
        pair.ports[i] = port_of(pair.ends[i]);
    return pair;
}

static void close_pair(const struct pair *pair)
{
    close(pair->ends[0]);
    close(pair->ends[1]);
}

static void transfer(const struct pair *pair)
{
    static char bytes[BYTES];
    size_t sent = 0, received = 0;
    while (received < sizeof bytes) {
        ssize_t part = send(pair->ends[0], bytes + sent, sizeof bytes - sent, MSG_DONTWAIT);
        sent += part > 0 ? (size_t)part : 0;
        part = recv(pair->ends[1], bytes, sizeof bytes, 0);
        assert_true(part > 0);
        received += (size_t)part;
    }
}

static const struct socket_view *find(const struct sockets *sockets, uint16_t port)
{
    for (int i = 0; i < sockets->count; i++) {
        if (sockets->list[i].local.port == port)
            return &sockets->list[i];
    }
    return NULL;
}

static struct sockets read_own(void)
{
    struct sockets sockets;
    int own = getpid();
    ASSERT_OK(sockets_read(&own, 1, &sockets, &check_status));
    return sockets;
}

TEST(both_ends_of_a_connection)
{
    struct pair pair = connect_pair();
    transfer(&pair);
    struct sockets sockets = read_own();
    const struct socket_view *sender = find(&sockets, pair.ports[0]);
    int64_t deadline = clock_after(60);
    while (sender && sender->bytes < BYTES && clock_now() < deadline) { /* what was not acknowledged yet */
        sockets_free(&sockets);
        sockets = read_own();
        sender = find(&sockets, pair.ports[0]);
    }
    const struct socket_view *receiver = find(&sockets, pair.ports[1]);
    assert_non_null(sender);
    assert_non_null(receiver);
    assert_memory_equal(&sender->local, &receiver->remote, sizeof sender->local);
    assert_memory_equal(&sender->remote, &receiver->local, sizeof sender->local);
    assert_in_range(sender->bytes, BYTES, BYTES + 1);
    assert_in_range(receiver->bytes, 0, 1);
    assert_true(sender->busy >= sender->receiver_limited);
    sockets_free(&sockets);
    close_pair(&pair);
    sockets = read_own();
    assert_null(find(&sockets, pair.ports[0]));
    sockets_free(&sockets);
}

TEST(connections_of_other_processes_are_left_out)
{
    struct pair pair = connect_pair();
    struct sockets sockets;
    const int none = 1 << 30;
    ASSERT_OK(sockets_read(&none, 1, &sockets, &check_status));
    assert_int_equal(sockets.count, 0);
    ASSERT_OK(sockets_read(NULL, 0, NULL, &check_status));
    close_pair(&pair);
}

static struct socket_view between(int from, int from_port, int to, int to_port, uint64_t busy)
{
    return (struct socket_view){.local = {{10, (uint8_t)from}, (uint16_t)from_port},
                                .remote = {{10, (uint8_t)to}, (uint16_t)to_port},
                                .bytes = 1000,
                                .busy = busy,
                                .receiver_limited = busy / 2,
                                .retransmitted = 1};
}

TEST(sockets_as_a_message)
{
    struct socket_view list[] = {between(1, 5, 2, 6, 50), between(3, 7, 4, 8, 90)};
    struct wire_writer writer = {0}, again = {0};
    struct sockets back;
    sockets_put(&(struct sockets){list, 2, 2}, &writer);
    for (size_t length = 0; length <= writer.length; length++) {
        struct wire_reader reader = wire_reader_of(writer.bytes, length);
        assert_true(sockets_get(&back, &reader) == (length == writer.length));
        if (length == writer.length)
            sockets_put(&back, &again);
        sockets_free(&back);
    }
    assert_int_equal(again.length, writer.length);
    assert_memory_equal(again.bytes, writer.bytes, again.length);
    wire_writer_free(&again);
    memset(writer.bytes, 0xff, 4); /* too many */
    struct wire_reader reader = wire_reader_of(writer.bytes, writer.length);
    assert_false(sockets_get(&back, &reader));
    wire_writer_free(&writer);
}

TEST(too_many_sockets_are_cut)
{
    struct sockets many = {calloc(SOCKETS_LIMIT + 1, sizeof *many.list), SOCKETS_LIMIT + 1,
                           SOCKETS_LIMIT + 1},
                   back;
    struct wire_writer writer = {0};
    assert_non_null(many.list);
    sockets_put(&many, &writer);
    assert_true(writer.length < (size_t)100 << 10);
    struct wire_reader reader = wire_reader_of(writer.bytes, writer.length);
    assert_true(sockets_get(&back, &reader) && wire_done(&reader));
    assert_int_equal(back.count, SOCKETS_LIMIT);
    sockets_free(&back);
    sockets_free(&many);
    wire_writer_free(&writer);
}
