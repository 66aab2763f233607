/* intruders.c - connections that do not belong to a job. The thread of a test calls all of it; a target
 * without a thread of its own is served while an intruder waits. */
#include "intruders.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Until the descriptor has what is waited for. */
static void target_wait(const struct target *target, int fd, short events)
{
    int64_t end = clock_after(INTRUDERS_TIME);
    do {
        if (target->serve)
            target->serve(target->owner);
        if (clock_now() > end)
            fail_msg("no answer in %d s", INTRUDERS_TIME);
    } while (!socket_wait(fd, events, clock_now() + CLOCK_SECOND / 1000));
}

int intruder_dial(const struct target *target)
{
    int fd = socket_connect_numeric("127.0.0.1", target->port);
    assert_true(fd >= 0);
    target_wait(target, fd, POLLOUT);
    return fd;
}

void intruder_send(int fd, const void *bytes, size_t length)
{
    ssize_t ignored = send(fd, bytes, length, MSG_NOSIGNAL);
    (void)ignored;
}

/* Up to so many bytes, or until the target closes the connection: fewer. */
static size_t intruder_read(const struct target *target, int fd, uint8_t *bytes, size_t wanted)
{
    size_t length = 0;
    ssize_t n = 1;
    while (length < wanted && n) {
        target_wait(target, fd, POLLIN);
        n = recv(fd, bytes + length, wanted - length, MSG_DONTWAIT);
        n = n < 0 ? (errno == EAGAIN ? -1 : 0) : n;
        length += n > 0 ? (size_t)n : 0;
    }
    return length;
}

void intruder_is_turned_away(const struct target *target, int fd)
{
    uint8_t bytes[2 * HANDSHAKE_MESSAGE_LIMIT];
    assert_true(intruder_read(target, fd, bytes, sizeof bytes) < sizeof bytes);
    close(fd);
}

hvd_code intruder_shake(const struct target *target, struct handshake *handshake, int fd, hvd_status *status)
{
    hvd_code code;
    while ((code = handshake_advance(handshake, fd, status)) == HVD_IN_PROGRESS)
        target_wait(target, fd, handshake_events(handshake));
    return code;
}

void try_wrong_key(const struct target *target)
{
    struct handshake handshake;
    hvd_status status;
    int fd = intruder_dial(target);
    ASSERT_OK(handshake_initiate(&handshake, "a guess", &target->claim, "the job", &check_status));
    assert_int_equal(intruder_shake(target, &handshake, fd, &status), HVD_REFUSED);
    check_text(status.text, "HOROVOD_SECRET");
    intruder_is_turned_away(target, fd);
}

void try_other_release(const struct target *target)
{
    struct handshake handshake;
    uint8_t reply[HANDSHAKE_MESSAGE_LIMIT];
    hvd_status status;
    int fd = intruder_dial(target);
    ASSERT_OK(handshake_initiate(&handshake, target->secret, &target->claim, "the job", &check_status));
    handshake.out[4]++;
    intruder_send(fd, handshake.out, handshake.stream.out.length);
    size_t length = intruder_read(target, fd, reply, sizeof reply);
    assert_int_equal(handshake_receive(&handshake, reply, length, &status), HVD_REFUSED);
    check_text(status.text, "install the same release");
    close(fd);
}

void try_replay(const struct target *target, const void *behind, size_t behind_length)
{
    struct handshake member;
    uint8_t hello[HANDSHAKE_MESSAGE_LIMIT], reply[8 + 1 + 32 + 32];
    int fd = intruder_dial(target);
    ASSERT_OK(handshake_initiate(&member, target->secret, &target->claim, "the job", &check_status));
    size_t length = member.stream.out.length;
    memcpy(hello, member.out, length);
    ASSERT_OK(intruder_shake(target, &member, fd, &check_status));
    close(fd);
    fd = intruder_dial(target);
    intruder_send(fd, hello, length);
    assert_int_equal(intruder_read(target, fd, reply, sizeof reply), sizeof reply);
    assert_int_equal(reply[8], 0); /* the verdict so far */
    intruder_send(fd, member.out, 8 + 1 + 32);
    intruder_send(fd, behind, behind_length);
    intruder_is_turned_away(target, fd);
}

void try_oversized(const struct target *target)
{
    uint8_t body[100], header[][8] = {"HHVD\1\0\377\377", "HHVD\1\0\371\1", "HHVD\1\0\144\0"};
    memset(body, 0xff, sizeof body);
    for (size_t i = 0; i < sizeof header / sizeof *header; i++) {
        int fd = intruder_dial(target);
        body[0] = (uint8_t)target->claim.role;
        intruder_send(fd, header[i], sizeof header[i]);
        intruder_send(fd, body, sizeof body);
        intruder_is_turned_away(target, fd);
    }
}

void try_garbage(const struct target *target)
{
    uint64_t random = 42;
    for (size_t i = 0; i < 200; i++) {
        uint8_t bytes[300];
        int fd = intruder_dial(target);
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (uint8_t)((random = random * 6364136223846793005u + 1442695040888963407u) >> 56);
        if (i % 2)
            memcpy(bytes, "HHVD\1\0", 6);
        intruder_send(fd, bytes, i + 1);
        if (i % 8 == 6) /* no magic: ends at once; half a hello may wait for the rest */
            intruder_is_turned_away(target, fd);
        else
            close(fd);
    }
}

struct silent silent_flood(const struct target *target)
{
    enum { WANTED = 10000, OTHERS = 1000 };
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    int room = limit.rlim_cur > WANTED + OTHERS ? WANTED : (int)limit.rlim_cur - OTHERS;
    struct silent silent = {.fds = malloc(WANTED * sizeof(int))};
    if (room < WANTED)
        print_message("%d silent connections, not %d: ulimit -n is %d\n", room, WANTED, (int)limit.rlim_cur);
    assert_true(silent.fds && room > 1000);
    while (silent.count < room) {
        assert_true((silent.fds[silent.count++] = socket_connect_numeric("127.0.0.1", target->port)) >= 0);
        if (target->serve && silent.count % 100 == 0)
            target->serve(target->owner);
    }
    return silent;
}

void silent_end(struct silent *silent)
{
    while (silent->count)
        close(silent->fds[--silent->count]);
    free(silent->fds);
}
