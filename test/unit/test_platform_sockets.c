/* test_platform_sockets.c - descriptors that are received over a Unix socket: none stays open unasked,
 * whatever the peer sends; the state of the process at its other end. */
#include "base/platform_sockets.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 3 };

static void send_descriptors(int socket, const int *fds, size_t count)
{
    union {
        char bytes[CMSG_SPACE(MOST * sizeof(int))];
        struct cmsghdr header;
    } control = {0};
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    assert_int_equal(sendmsg(socket, &message, 0), 1);
}

TEST(test_one_descriptor_is_taken)
{
    int ends[2], fd = -1;
    char byte;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(platform_send_with_fd(ends[0], "x", 1, STDIN_FILENO), 1);
    assert_int_equal(platform_receive_with_fd(ends[1], &byte, 1, &fd), 1);
    assert_true(fd >= 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    close(ends[0]);
    close(ends[1]);
}

TEST(test_surplus_descriptors_are_closed)
{
    const int fds[MOST] = {STDIN_FILENO, STDIN_FILENO, STDIN_FILENO};
    for (size_t count = 1; count <= MOST; count++) {
        int ends[2], fd = -1;
        char byte;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        int before = count_entries("/proc/self/fd");
        send_descriptors(ends[0], fds, count);
        assert_int_equal(platform_receive_with_fd(ends[1], &byte, 1, &fd), 1);
        if (fd >= 0)
            close(fd);
        assert_int_equal(count_entries("/proc/self/fd"), before);
        close(ends[0]);
        close(ends[1]);
    }
}

TEST(test_what_the_other_process_does)
{
    int ends[2], outcome;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(platform_peer_state(ends[0]), 'R'); /* this process */
    assert_int_equal(platform_peer_state(-1), '\0');
    close(ends[0]);
    close(ends[1]);
    char name[64];
    snprintf(name, sizeof name, "test_platform.%d", (int)getpid());
    int listener = platform_local_listen(name);
    assert_true(listener >= 0);
    pid_t child = fork();
    if (child == 0) {
        if (platform_local_connect(name) >= 0)
            raise(SIGSTOP);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &outcome, WUNTRACED), child);
    assert_true(WIFSTOPPED(outcome));
    int accepted = accept(listener, NULL, NULL);
    assert_int_equal(platform_peer_state(accepted), 'T');
    kill(child, SIGKILL);
    waitpid(child, &outcome, 0);
    assert_int_equal(platform_peer_state(accepted), '\0');
    close(accepted);
    close(listener);
}
