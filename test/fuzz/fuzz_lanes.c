/* fuzz_lanes.c - any bytes on the connections of a striped stream, and of one that is not striped. First
 * byte: how many lanes. Then pieces: lane, length, bytes; a length of 255 is a whole block without its
 * number. A lane may also end. What is received never exceeds the memory for it, and a stream that has failed
 * stays failed. */
#include "base/platform_poller.h"
#include "transport/lanes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BLOCK = 128 << 10, WHOLE = 255, END = 254, PARTS = 2 };

struct subject {
    struct lanes lanes;
    int ends[LANES_LIMIT]; /* the other host's; -1: closed */
    bool failed;
};

static void receive(struct subject *subject, size_t limit)
{
    struct iovec parts[PARTS] = {{malloc(limit), limit}, {malloc(2 * limit), 2 * limit}};
    if (!parts[0].iov_base || !parts[1].iov_base)
        abort();
    ssize_t count = lanes_receive(&subject->lanes, parts, PARTS);
    if (count > (ssize_t)(3 * limit) || (count >= 0 && subject->failed))
        abort();
    if (subject->lanes.striped && (!subject->lanes.in_left || subject->lanes.in_left > BLOCK))
        abort();
    subject->failed = count < 0;
    if (subject->failed && subject->lanes.malformed && errno != EBADMSG)
        abort();
    for (int i = 0; i < PARTS; i++)
        free(parts[i].iov_base);
}

/* As the poller reports what was sent; the lanes are read until nothing is left. */
static void read_all(struct subject *subject, size_t limit)
{
    lanes_ready(&subject->lanes, POLLER_READ);
    for (int turns = 0; turns < 1000 && !subject->failed && lanes_may_receive(&subject->lanes); turns++)
        receive(subject, limit);
}

static void put(struct subject *subject, unsigned lane, const uint8_t *bytes, size_t length)
{
    static const uint8_t block[BLOCK];
    int *end = &subject->ends[lane % (unsigned)subject->lanes.count];
    bool whole = length == WHOLE;
    if (length == END && *end >= 0) {
        close(*end);
        *end = -1;
    } else if (*end >= 0) { /* what does not fit into the socket is lost */
        ssize_t ignored = send(*end, whole ? block : bytes, whole ? sizeof block : length, MSG_NOSIGNAL);
        (void)ignored;
    }
}

static void open_lanes(struct subject *subject, unsigned count)
{
    lanes_init(&subject->lanes, count > 1, 0);
    for (unsigned i = 0; i < count; i++) {
        int ends[2], room = 2 * BLOCK;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) ||
            !lanes_add(&subject->lanes, ends[0], NULL))
            abort();
        setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        subject->ends[i] = ends[1];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct subject subject = {0};
    if (!length)
        return 0;
    open_lanes(&subject, 1 + bytes[0] % LANES_LIMIT);
    for (size_t at = 1; at + 2 <= length;) {
        size_t count = bytes[at + 1], left = length - at - 2;
        bool plain = count < END;
        count = plain && count > left ? left : count;
        put(&subject, bytes[at], bytes + at + 2, count);
        at += 2 + (plain ? count : 0);
        read_all(&subject, 1 + bytes[0]);
        lanes_ended(&subject.lanes);
    }
    lanes_close(&subject.lanes);
    for (int i = 0; i < subject.lanes.count; i++)
        if (subject.ends[i] >= 0)
            close(subject.ends[i]);
    return 0;
}
