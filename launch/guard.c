/* guard.c - a process of its own that sleeps until the launcher is gone, and then kills all that carries the
 * job's name in its environment, with their process groups.
 *
 * The launcher alone holds the pipe's other end, which closes on exec: at end of file every rank that was
 * forked has its own environment, so none can be missed. Killing goes on until a pass over /proc finds
 * nothing, since processes may fork meanwhile. */
#include "guard.h"

#include "base/clock.h"
#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENVIRONMENT_LIMIT (1 << 20)
#define SWEEP_SECONDS     5

static bool carries(pid_t pid, const char *mark, char *buffer)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    /* Refused for processes of other users, which are none of the job's. */
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    size_t used = 0;
    ssize_t count;
    while (used < ENVIRONMENT_LIMIT && (count = read(file, buffer + used, ENVIRONMENT_LIMIT - used)) > 0)
        used += (size_t)count;
    close(file);
    size_t length = strlen(mark) + 1; /* with the NUL */
    /* The whole variable, from one NUL to the next: a longer name may begin alike. */
    for (const char *at = buffer; at < buffer + used; at++) {
        if ((size_t)(buffer + used - at) >= length && memcmp(at, mark, length) == 0)
            return true;
        at = memchr(at, '\0', (size_t)(buffer + used - at));
        if (!at)
            return false;
    }
    return false;
}

static bool kill_marked(DIR *processes, const char *mark, char *buffer)
{
    bool found = false;
    rewinddir(processes);
    for (const struct dirent *entry; (entry = readdir(processes));) {
        /* 0 for what is no process: /proc has other names, too. */
        pid_t pid = (pid_t)atoi(entry->d_name);
        if (pid <= 1 || !carries(pid, mark, buffer))
            continue;
        found = true;
        pid_t group = getpgid(pid);
        if (group > 1)
            kill(-group, SIGKILL);
        /* Also by itself: its group may be unknown, or another one by now. */
        kill(pid, SIGKILL);
    }
    return found;
}

/* The guard must neither be found by another job's guard, nor hold files or a terminal, nor be hit by a
 * `pkill horovodrun`. */
static void step_aside(void)
{
    extern char **environ;
    for (char **entry = environ; *entry; entry++)
        memset(*entry, 0, strlen(*entry));
    setsid();
    prctl(PR_SET_NAME, "hvd-guard");
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int file = 0; file <= 2; file++)
        dup2(nothing, file);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
}

static void guard_run(int gone, const char *mark)
{
    step_aside();
    char *buffer = malloc(ENVIRONMENT_LIMIT);
    char byte;
    ssize_t count;
    do {
        count = read(gone, &byte, 1);
    } while (count > 0 || (count < 0 && errno == EINTR));
    DIR *processes = opendir("/proc");
    /* What is still there after so long is stuck in the kernel, or forks faster than it is killed. */
    int64_t deadline = clock_after(SWEEP_SECONDS);
    while (buffer && processes && kill_marked(processes, mark, buffer) && clock_now() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    _exit(0);
}

hvd_code guard_start(struct guard *guard, const char *job, hvd_status *status)
{
    int ends[2];
    char mark[128];
    snprintf(mark, sizeof mark, "HOROVOD_JOB=%s", job);
    if (pipe2(ends, O_CLOEXEC))
        return status_set_errno(status, errno, "can't make a pipe");
    guard->pid = fork();
    if (guard->pid == 0) {
        close(ends[1]);
        guard_run(ends[0], mark);
    }
    close(ends[0]);
    guard->alive = ends[1];
    if (guard->pid > 0)
        return HVD_OK;
    int error = errno;
    close(ends[1]);
    guard->pid = 0;
    return status_set_errno(status, error, "can't start the job's guard process");
}

void guard_finish(struct guard *guard)
{
    if (!guard->pid)
        return;
    close(guard->alive);
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    guard->pid = 0;
}
