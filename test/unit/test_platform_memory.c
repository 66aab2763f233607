/* test_platform_memory.c - shared memory under signals and limits. */
#include "base/platform_memory.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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
