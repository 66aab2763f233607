/* lanes.c - divides a stream into numbered blocks, gives each block to a lane, and puts received blocks into
 * the order of their numbers. One thread at a time, the one that makes progress or opens the mesh; nothing
 * blocks. */
#include "transport/lanes.h"

#include "base/platform_poller.h"
#include "net/socket.h"

#include <errno.h>
#include <limits.h>
#include <linux/sockios.h>
#include <linux/tcp.h> /* of netinet/tcp.h struct tcp_info is older */
#include <math.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define BLOCK          ((size_t)128 << 10)
#define UNSENT_LIMIT   (1 << 20) /* bytes in the kernel, so that a slow lane holds back few blocks */
#define PARTS_PER_CALL 64
#define WINDOW         (1 << 18) /* blocks: more than the buffers of all lanes can hold */

/* By default TCP doubles the time from one retransmission to the next, so that an outage lasts up to twice as
 * long for it; from Linux 6.15 on that time is bounded by a share of the limit. The share must not be
 * smaller: while the host's own interface is down the kernel gives a connection up after 15 retransmissions.
 */
#define PERIODS_OF_LIMIT 10
#define LEAST_PERIOD     1000 /* ms, the kernel's */

/* The time in ms until the kernel gives up a connection whose retransmissions are lost. It is about the
 * kernel's default, which that period would shorten. */
#define RETRANSMISSION_TIME 900000
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

void lanes_init(struct lanes *lanes, bool striped, double limit)
{
    size_t block = striped ? BLOCK : SIZE_MAX;
    int first = striped ? -1 : 0;
    *lanes = (struct lanes){.striped = striped,
                            .limit = limit,
                            .outgoing = first,
                            .incoming = first,
                            .out_left = block,
                            .in_left = block};
}

bool lanes_add(struct lanes *lanes, int fd, struct tls *tls)
{
    double limit = lanes->limit;
    int unsent = UNSENT_LIMIT;
    int time = (int)fmax(RETRANSMISSION_TIME, fmin(2000 * limit, INT_MAX));
    int period = (int)fmax(LEAST_PERIOD, fmin(1000 * limit / PERIODS_OF_LIMIT, INT_MAX));
    if (lanes->count == (lanes->striped ? LANES_LIMIT : 1))
        return false;
    if (lanes->striped)
        setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    socket_send_at_once(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &time, sizeof time);
    if (limit > 0)
        setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &period, sizeof period);
    lanes->list[lanes->count++] = (struct lane){.fd = fd, .tls = tls, .readable = true, .writable = true};
    return true;
}

/* ---- parts -------------------------------------------------------------------------------------------- */

/* The bytes that a call has not moved yet. */
struct cursor {
    const struct iovec *parts;
    int count;
    size_t moved; /* bytes of the first part that were moved */
};

static size_t bytes_of(const struct iovec *parts, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += parts[i].iov_len;
    return bytes;
}

/* Appends up to `limit` bytes to the first `used` parts. Returns the number of bytes. */
static size_t cursor_peek(const struct cursor *cursor, size_t limit, struct iovec *parts, int *used)
{
    size_t bytes = 0;
    for (int i = 0; i < cursor->count && bytes < limit && *used < PARTS_PER_CALL; i++) {
        size_t skip = i ? 0 : cursor->moved, length = cursor->parts[i].iov_len - skip;
        if (length > limit - bytes)
            length = limit - bytes;
        parts[(*used)++] = (struct iovec){(char *)cursor->parts[i].iov_base + skip, length};
        bytes += length;
    }
    return bytes;
}

static void cursor_move(struct cursor *cursor, size_t bytes)
{
    for (bytes += cursor->moved; cursor->count && bytes >= cursor->parts->iov_len; cursor->count--)
        bytes -= cursor->parts++->iov_len;
    cursor->moved = bytes;
}

/* ---- sending ------------------------------------------------------------------------------------------ */

bool lanes_may_send(const struct lanes *lanes)
{
    if (lanes->outgoing >= 0)
        return lanes->list[lanes->outgoing].writable;
    for (int i = 0; i < lanes->count; i++)
        if (lanes->list[i].writable)
            return true;
    return false;
}

/* Returns the lane for the next block; lanes with equally many unsent bytes take turns. */
static int choose(const struct lanes *lanes)
{
    int best = -1, fewest = 0;
    for (int i = 0; i < lanes->count; i++) {
        int at = (int)((lanes->next_out + (unsigned)i) % (unsigned)lanes->count), unsent;
        if (!lanes->list[at].writable)
            continue;
        if (ioctl(lanes->list[at].fd, SIOCOUTQNSD, &unsent))
            unsent = 0;
        if (best < 0 || unsent < fewest) {
            best = at;
            fewest = unsent;
        }
    }
    return best;
}

static ssize_t send_on(struct lane *lane, struct iovec *parts, int count)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    ssize_t n = lane->tls ? tls_write(lane->tls, parts, count) : sendmsg(lane->fd, &message, MSG_NOSIGNAL);
    if (n >= 0) {
        /* Less than offered: the socket is full, and the poller reports room. TLS accepts whole records. */
        lane->writable = lane->tls || (size_t)n == bytes_of(parts, count);
        return n;
    }
    if (errno == EINTR)
        return 0;
    lane->writable = false;
    return errno == EAGAIN ? 0 : -1;
}

/* Once a byte of a block was offered to a lane the whole block is that lane's: TLS may hold it already. */
static ssize_t send_some(struct lanes *lanes, struct cursor *cursor)
{
    struct iovec parts[PARTS_PER_CALL];
    int count = 0;
    if (!lanes_may_send(lanes))
        return 0;
    if (lanes->outgoing < 0) {
        lanes->outgoing = choose(lanes);
        memcpy(lanes->number, &lanes->next_out, sizeof lanes->number);
        lanes->number_left = sizeof lanes->number;
    }
    if (lanes->number_left)
        parts[count++] =
            (struct iovec){lanes->number + sizeof lanes->number - lanes->number_left, lanes->number_left};
    cursor_peek(cursor, lanes->out_left, parts, &count);
    ssize_t n = send_on(&lanes->list[lanes->outgoing], parts, count);
    if (n <= 0)
        return n;
    size_t number = (size_t)n < lanes->number_left ? (size_t)n : lanes->number_left;
    size_t moved = (size_t)n - number;
    lanes->number_left -= number;
    cursor_move(cursor, moved);
    if (lanes->striped && !(lanes->out_left -= moved)) {
        lanes->out_left = BLOCK;
        lanes->outgoing = -1;
        lanes->next_out++;
    }
    return (ssize_t)moved;
}

ssize_t lanes_send(struct lanes *lanes, const struct iovec *parts, int count)
{
    struct cursor cursor = {parts, count, 0};
    ssize_t total = 0, n;
    do {
        n = send_some(lanes, &cursor);
        total += n > 0 ? n : 0;
    } while (n > 0 && lanes->striped && cursor.count);
    return total ? total : n;
}

/* ---- receiving ---------------------------------------------------------------------------------------- */

static bool has_next(const struct lanes *lanes, const struct lane *lane)
{
    return lane->number_read == sizeof lane->number &&
           memcmp(lane->number, &lanes->next_in, sizeof lane->number) == 0;
}

/* Returns false if the block has been received already, or is farther ahead than blocks in flight can be:
 * nobody would ever wait for it. */
static bool is_plausible(const struct lanes *lanes, const struct lane *lane)
{
    uint32_t number;
    memcpy(&number, lane->number, sizeof number);
    return lane->number_read < sizeof lane->number || number - lanes->next_in < WINDOW;
}

/* Returns true if the next byte may arrive on this lane. */
static bool is_awaited(const struct lanes *lanes, int at)
{
    const struct lane *lane = &lanes->list[at];
    if (lanes->incoming >= 0)
        return at == lanes->incoming;
    return lane->number_read < sizeof lane->number || has_next(lanes, lane);
}

bool lanes_may_receive(const struct lanes *lanes)
{
    if (lanes->malformed)
        return true;
    for (int i = 0; i < lanes->count; i++)
        if (is_awaited(lanes, i) && lanes->list[i].readable)
            return true;
    return false;
}

/* A block may also arrive on a lane that has not joined here yet. */
bool lanes_ended(const struct lanes *lanes)
{
    bool any = false;
    for (int i = 0; i < lanes->count; i++) {
        if (is_awaited(lanes, i) && !lanes->list[i].ended)
            return false;
        any |= is_awaited(lanes, i);
    }
    return any;
}

static ssize_t receive_on(struct lane *lane, struct iovec *parts, int count)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    size_t asked = bytes_of(parts, count);
    if (!lane->readable || !asked)
        return 0;
    ssize_t n;
    do
        n = lane->tls ? tls_read(lane->tls, parts, count) : recvmsg(lane->fd, &message, 0);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        /* Less than asked: that was all, and the poller reports more; but it reports the end only once. */
        lane->readable = (size_t)n == asked || lane->ending;
        return n;
    }
    lane->readable = false;
    lane->ended = n == 0 || errno != EAGAIN;
    lane->error = n < 0 && lane->ended ? errno : 0;
    return 0;
}

/* Finds the lane on which the next block arrives. */
static void find_incoming(struct lanes *lanes)
{
    for (int i = 0; lanes->incoming < 0 && i < lanes->count; i++) {
        struct lane *lane = &lanes->list[i];
        struct iovec rest = {lane->number + lane->number_read, sizeof lane->number - lane->number_read};
        lane->number_read += (size_t)receive_on(lane, &rest, 1);
        if (has_next(lanes, lane))
            lanes->incoming = i;
        lanes->malformed |= !is_plausible(lanes, lane);
    }
}

/* Receives the rest of a block, and the number behind it, in one system call. */
static size_t receive_some(struct lanes *lanes, struct cursor *cursor)
{
    struct iovec parts[PARTS_PER_CALL + 1];
    int count = 0;
    if (lanes->incoming < 0)
        find_incoming(lanes);
    if (lanes->incoming < 0)
        return 0;
    struct lane *lane = &lanes->list[lanes->incoming];
    if (cursor_peek(cursor, lanes->in_left, parts, &count) == lanes->in_left)
        parts[count++] = (struct iovec){lane->number, sizeof lane->number};
    size_t n = (size_t)receive_on(lane, parts, count);
    size_t moved = n < lanes->in_left ? n : lanes->in_left;
    cursor_move(cursor, moved);
    if (lanes->striped && !(lanes->in_left -= moved)) {
        lane->number_read = n - moved;
        lanes->in_left = BLOCK;
        lanes->incoming = -1;
        lanes->next_in++;
    }
    return moved;
}

ssize_t lanes_receive(struct lanes *lanes, const struct iovec *parts, int count)
{
    struct cursor cursor = {parts, count, 0};
    size_t total = 0, n;
    do {
        n = receive_some(lanes, &cursor);
        total += n;
    } while (n && lanes->striped && cursor.count);
    if (total || (!lanes->malformed && !lanes_ended(lanes)))
        return (ssize_t)total;
    errno = lanes->malformed ? EBADMSG : 0;
    for (int i = 0; i < lanes->count && !errno; i++)
        errno = lanes->list[i].error;
    return -1;
}

/* ---- for the poller ----------------------------------------------------------------------------------- */

void lanes_ready(struct lanes *lanes, unsigned what)
{
    for (int i = 0; i < lanes->count; i++) {
        struct lane *lane = &lanes->list[i];
        lane->ending |= (what & POLLER_END) != 0;
        lane->readable |= (what & (POLLER_READ | POLLER_END)) != 0;
        lane->writable |= (what & POLLER_WRITE) != 0;
    }
}

int lanes_error(const struct lanes *lanes)
{
    int error = 0;
    for (int i = 0; i < lanes->count && !error; i++)
        error = socket_error(lanes->list[i].fd);
    return error;
}

/* Probes of a closed window are acknowledged without bytes, but leave nothing unacknowledged. */
static bool is_unanswered(struct lane *lane)
{
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    if (getsockopt(lane->fd, IPPROTO_TCP, TCP_INFO, &info, &length))
        return false;
    bool unanswered =
        info.tcpi_unacked && info.tcpi_retransmits && info.tcpi_bytes_acked == lane->acknowledged;
    lane->acknowledged = info.tcpi_bytes_acked;
    return unanswered;
}

int lanes_find_broken(struct lanes *lanes, unsigned limit)
{
    int broken = -1;
    for (int i = 0; i < lanes->count; i++) {
        struct lane *lane = &lanes->list[i];
        lane->unanswered = is_unanswered(lane) ? lane->unanswered + 1 : 0;
        if (lane->unanswered >= limit)
            broken = lane->fd;
    }
    return broken;
}

bool lanes_are_delivered(const struct lanes *lanes)
{
    int unacknowledged = 0;
    for (int i = 0; i < lanes->count && !unacknowledged; i++)
        if (ioctl(lanes->list[i].fd, SIOCOUTQ, &unacknowledged))
            unacknowledged = 0;
    return !unacknowledged;
}

/* ---- the end ------------------------------------------------------------------------------------------ */

/* A close with unread bytes would reset the connection, and the peer might lose the last bytes. */
void lanes_close(struct lanes *lanes)
{
    char unread[4096];
    for (int i = 0; i < lanes->count; i++) {
        struct lane *lane = &lanes->list[i];
        shutdown(lane->fd, SHUT_WR);
        for (int tries = 256; tries && recv(lane->fd, unread, sizeof unread, 0) > 0;)
            tries--;
        socket_close(&lane->fd);
        tls_free(lane->tls);
    }
}

void lanes_abandon(struct lanes *lanes)
{
    for (int i = 0; i < lanes->count; i++)
        socket_close(&lanes->list[i].fd);
}
