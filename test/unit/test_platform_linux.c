/* test_platform_linux.c - descriptors that are received over a Unix socket: none stays open unasked, whatever
 * the peer sends; the state of the process at its other end; shared memory under signals and limits;
 * processor time. */
#include "base/platform.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
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
    int listener = platform_local_listen("test_platform.stopped");
    assert_true(listener >= 0);
    pid_t child = fork();
    if (child == 0) {
        if (platform_local_connect("test_platform.stopped") >= 0)
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

/* ---- memory ------------------------------------------------------------------------------------------ */

static int attempts; /* 0: the kernel does it at once */

/* In place of the C library's: up to Linux 6.8 a signal undoes all that was allocated. */
int posix_fallocate(int fd, off_t offset, off_t length)
{
    struct timespec duration = {.tv_nsec = 30000000};
    if (attempts > 0 && ++attempts < 20 && nanosleep(&duration, NULL))
        return EINTR;
    return fallocate(fd, 0, offset, length) ? errno : 0;
}

static void ignore(int signal)
{
    (void)signal;
}

TEST(test_memory_comes_at_once_beside_the_timer_of_a_profiler)
{
    const struct itimerval often = {{.tv_usec = 10000}, {.tv_usec = 10000}}, never = {{0}, {0}};
    const struct sigaction handled = {.sa_handler = ignore};
    sigaction(SIGALRM, &handled, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    attempts = 1;
    int fd = platform_memory_create(4096, true);
    setitimer(ITIMER_REAL, &never, NULL);
    assert_true(fd >= 0);
    assert_int_equal(attempts, 2);
    attempts = 0;
    close(fd);
}

TEST(test_memory_beyond_the_limit_of_files_is_an_error)
{
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, 4096});
        signal(SIGXFSZ, SIG_DFL);
        bool refused = platform_memory_create(8192, true) < 0 && errno == EFBIG;
        sigset_t blocked;
        sigprocmask(SIG_SETMASK, NULL, &blocked);
        _exit(refused && !sigismember(&blocked, SIGXFSZ) ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* A system without schedstat says 0. */
TEST(test_times_of_the_main_thread)
{
    struct platform_process before, after;
    struct timespec start, now;
    assert_true(platform_process(getpid(), &before));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    do
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    while ((now.tv_sec - start.tv_sec) * 1000000000L + now.tv_nsec - start.tv_nsec < 30000000L);
    assert_true(platform_process(getpid(), &after));
    assert_true(!after.running || after.running - before.running >= 20000000);
    assert_true(after.runnable >= before.runnable);
    assert_true(platform_thread_running(getpid(), getpid()) >= after.running);
    assert_int_equal(platform_thread_running(getpid(), 0), 0);
}

TEST(test_load)
{
    struct platform_load load = platform_load();
    assert_true(load.cores >= 1);
    assert_true(load.runnable >= 0);
}
