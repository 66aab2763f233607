/* child.c - starts a process that ends with this one: a rank, or a connection to a host. One thread. Each
 * child leads a process group, so that one signal reaches all that it has started. None has a terminal, since
 * this process has left the user's session. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Puts the files at descriptors 0 to count - 1. Any of them may have one of these numbers already. */
static bool place_files(int *files, int count)
{
    for (int i = 0; i < count; i++) {
        int file = files[i] >= 0 ? files[i] : open("/dev/null", O_RDWR | O_CLOEXEC);
        files[i] = fcntl(file, F_DUPFD_CLOEXEC, count);
        if (files[i] < 0)
            return false;
    }
    for (int i = 0; i < count; i++) {
        if (dup2(files[i], i) < 0)
            return false;
        /* Programs do not expect standard files that don't block. */
        int flags = i <= STDERR_FILENO ? fcntl(i, F_GETFL) : 0;
        if (flags > 0 && (flags & O_NONBLOCK))
            fcntl(i, F_SETFL, flags & ~O_NONBLOCK);
    }
    return true;
}

/* Runs in the new process, with all signals blocked. Other threads may have held any lock at the fork, so
 * only functions that are safe in a signal handler may be called. */
static void become(const struct child *child, pid_t parent, int report)
{
    int files[CHILD_FILES];
    sigset_t none;
    sigemptyset(&none);
    for (int number = 1; number < SIGRTMIN; number++)
        signal(number, SIG_DFL);
    if (child->shares_session)
        setpgid(0, 0);
    else
        setsid();
    prctl(PR_SET_PDEATHSIG, child->end_signal);
    if (getppid() != parent) /* it has already ended, and sends no signal */
        _exit(1);
    for (int i = 0; i < child->file_count; i++)
        files[i] = child->files[i];
    report = fcntl(report, F_DUPFD_CLOEXEC, child->file_count);
    if (report >= 0 && place_files(files, child->file_count)) {
        environ = child->environment ? child->environment : environ;
        sigprocmask(SIG_SETMASK, &none, NULL);
        execvp(child->words[0], child->words);
    }
    int error = errno;
    if (write(report, &error, sizeof error) < 0)
        _exit(1);
    _exit(127);
}

/* The other end of the report closes when the command runs. If it can't run, the report holds the error. */
static int error_of(pid_t pid, int report)
{
    int error = 0;
    ssize_t length;
    do
        length = read(report, &error, sizeof error);
    while (length < 0 && errno == EINTR);
    if (length <= 0)
        return 0;
    waitpid(pid, NULL, 0);
    return error;
}

pid_t child_start(const struct child *child, struct guard *guard)
{
    int report[2], error;
    sigset_t all, before;
    if (pipe2(report, O_CLOEXEC))
        return -errno;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before); /* none of this process's handlers may run in the child */
    pid_t parent = getpid(), pid = fork();
    error = errno;
    if (pid == 0)
        become(child, parent, report[1]);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(report[1]);
    if (pid > 0)
        error = error_of(pid, report[0]);
    close(report[0]);
    if (error)
        return -error;
    guard_add(guard, pid);
    return pid;
}
