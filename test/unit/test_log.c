/* test_log.c - lines that can't be written do not end the program. */
#include "base/status.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* How a process ends that logs two lines to `file`. */
static int status_after_lines(int file)
{
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){8, 8});
        signal(SIGXFSZ, SIG_DFL);
        signal(SIGPIPE, SIG_DFL);
        dup2(file, STDERR_FILENO);
        log_error(0, "one");
        log_error(0, "two");
        _exit(7);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

TEST(test_a_file_at_its_limit)
{
    char path[] = "/tmp/hvd_log_XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    unlink(path);
    assert_int_equal(status_after_lines(file), 7 << 8);
    close(file);
}

TEST(test_a_pipe_that_nobody_reads)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(status_after_lines(ends[1]), 7 << 8);
    close(ends[1]);
}
