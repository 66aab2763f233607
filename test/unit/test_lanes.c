/* test_lanes.c - a stream over several sockets brings every byte in order: lanes with much and little room,
 * on one end before the other, joined in any order, whatever the sizes of calls; and a lost lane is its end.
 */
#include "base/clock.h"
#include "base/platform_poller.h"
#include "net/socket.h"
#include "random.h"
#include "test.h"
#include "transport/lanes.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TOTAL = 3 << 20, CALL = 300 << 10, PARTS = 5 };

#define LIMIT    30.0
#define PATIENCE (20 * CLOCK_SECOND) /* the kernel may wait for timers before it sends the rest of a lane */

static uint64_t random_state;

static size_t below(size_t limit)
{
    return (size_t)random_below(&random_state, (int64_t)limit);
}

/* A connection whose ends are fds[0] and fds[1]. */
static void connect_pair(int fds[2], int room)
{
    int port = 0, listener = socket_listen("127.0.0.1", &port);
    fds[0] = socket_connect_numeric("127.0.0.1", port);
    struct pollfd one = {listener, POLLIN, 0};
    assert_int_equal(poll(&one, 1, 10000), 1);
    fds[1] = socket_accept(listener);
    assert_true(fds[0] >= 0 && fds[1] >= 0);
    if (room)
        setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    close(listener);
}

/* So many random parts of `length` bytes. */
static int cut(uint8_t *bytes, size_t length, struct iovec parts[PARTS])
{
    int count = 0;
    for (size_t left = length; count < PARTS && left; count++) {
        size_t n = count == PARTS - 1 ? left : below(left + 1);
        parts[count] = (struct iovec){bytes, n};
        bytes += n;
        left -= n;
    }
    return count;
}

struct flow {
    struct lanes from, to;
    size_t sent, received;
    uint8_t all[TOTAL], in[CALL];
};

static struct flow *begin(bool striped)
{
    struct flow *flow = calloc(1, sizeof *flow);
    assert_non_null(flow);
    for (size_t i = 0; i < TOTAL; i += sizeof(uint64_t))
        memcpy(flow->all + i, &(uint64_t){random_next(&random_state)}, sizeof(uint64_t));
    lanes_init(&flow->from, striped, LIMIT);
    lanes_init(&flow->to, striped, LIMIT);
    return flow;
}

static void end(struct flow *flow)
{
    lanes_close(&flow->to);
    free(flow);
}

static ssize_t send_some(struct flow *flow)
{
    struct iovec parts[PARTS];
    size_t left = TOTAL - flow->sent, length = 1 + below(below(4) ? CALL : 100);
    length = length < left ? length : left;
    lanes_ready(&flow->from, POLLER_WRITE);
    ssize_t n = length ? lanes_send(&flow->from, parts, cut(flow->all + flow->sent, length, parts)) : 0;
    flow->sent += n > 0 ? (size_t)n : 0;
    return n;
}

static ssize_t receive_some(struct flow *flow)
{
    struct iovec parts[PARTS];
    size_t left = TOTAL - flow->received, length = 1 + below(below(4) ? CALL : 100);
    length = length < left ? length : left;
    lanes_ready(&flow->to, POLLER_READ);
    ssize_t n = lanes_receive(&flow->to, parts, cut(flow->in, length, parts));
    if (n > 0 && memcmp(flow->in, flow->all + flow->received, (size_t)n) != 0)
        fail_msg("other bytes from %zu on", flow->received);
    flow->received += n > 0 ? (size_t)n : 0;
    return n;
}

/* Lane `late` joins the receiver after this many bytes. */
static void run(bool striped, int count, int late, size_t after)
{
    int fds[LANES_LIMIT][2];
    bool joined = false;
    struct flow *flow = begin(striped);
    for (int i = 0; i < count; i++) {
        connect_pair(fds[i], i % 3 == 1 ? 4096 : 0);
        assert_true(lanes_add(&flow->from, fds[i][0], NULL));
    }
    for (int i = count - 1; i >= 0; i--)
        if (i != late)
            assert_true(lanes_add(&flow->to, fds[i][1], NULL));
    int64_t deadline = clock_now() + PATIENCE;
    for (int idle = 0; flow->received < TOTAL && clock_now() < deadline; idle++) {
        if (!joined && late < count && (flow->sent >= after || idle > 1000)) {
            assert_true(lanes_add(&flow->to, fds[late][1], NULL));
            joined = true;
        }
        ssize_t sent = send_some(flow), received = receive_some(flow);
        assert_true(sent >= 0 && received >= 0);
        if (sent || received)
            idle = 0;
        else
            sched_yield();
    }
    assert_int_equal(flow->received, TOTAL);
    lanes_close(&flow->from);
    end(flow);
}

TEST(test_bytes_come_in_order)
{
    for (random_state = 1; random_state < 3; random_state++) {
        uint64_t seed = random_state;
        run(false, 1, LANES_LIMIT, 0);
        for (int count = 1; count <= LANES_LIMIT; count += count < 3 ? 2 : 5)
            run(true, count, LANES_LIMIT, 0);
        run(true, 3, (int)(seed % 3), 300000 * (size_t)seed);
        random_state = seed;
    }
}

/* Whichever lane is lost, the sender detects it and closes, and the bytes that the receiver has are right. */
TEST(test_a_lost_lane_ends_the_stream)
{
    for (int lost = 0; lost < 3; lost++) {
        ssize_t sent = 0, received = 0;
        random_state = (uint64_t)lost + 1;
        struct flow *flow = begin(true);
        for (int i = 0; i < 3; i++) {
            int fds[2];
            connect_pair(fds, 0);
            assert_true(lanes_add(&flow->from, fds[0], NULL) && lanes_add(&flow->to, fds[1], NULL));
        }
        int64_t deadline = clock_now() + PATIENCE;
        while (clock_now() < deadline && (sent >= 0 || received >= 0)) {
            if (flow->sent > TOTAL / 2 && flow->sent < TOTAL)
                shutdown(flow->from.list[lost].fd, SHUT_RDWR);
            if (sent >= 0 && (sent = send_some(flow)) < 0)
                lanes_close(&flow->from); /* as its rank would */
            received = received < 0 ? received : receive_some(flow);
        }
        assert_true(sent < 0 && received < 0 && flow->received <= flow->sent);
        end(flow);
    }
}

/* No reader would wait for such a block, nor for the blocks after it on that lane. */
TEST(test_a_number_that_cannot_be_is_a_fault)
{
    const uint32_t numbers[] = {1, 1 << 17, 1 << 18, UINT32_MAX, 0x80000000};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct lanes lanes;
        uint8_t byte;
        struct iovec part = {&byte, 1};
        int fds[2][2];
        ssize_t n = 0;
        lanes_init(&lanes, true, LIMIT);
        for (int lane = 0; lane < 2; lane++) {
            connect_pair(fds[lane], 0);
            assert_true(lanes_add(&lanes, fds[lane][1], NULL));
        }
        assert_int_equal(send(fds[1][0], &numbers[i], sizeof numbers[i], 0), sizeof numbers[i]);
        struct pollfd one = {fds[1][1], POLLIN, 0};
        assert_int_equal(poll(&one, 1, 10000), 1);
        for (int turn = 0; turn < 2 && n == 0; turn++) {
            lanes_ready(&lanes, POLLER_READ);
            n = lanes_receive(&lanes, &part, 1);
        }
        assert_int_equal(n, numbers[i] < 1 << 18 ? 0 : -1);
        assert_true(n == 0 || (errno == EBADMSG && lanes_may_receive(&lanes)));
        lanes_close(&lanes);
        close(fds[0][0]);
        close(fds[1][0]);
    }
}
