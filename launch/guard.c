/* guard.c - forks the process that runs the job, and kills all that is left of a job. One thread in each
 * process. The child has a command line, a name and a session of its own, so that it survives when the first
 * process is killed by one of these (`pkill -9 -f horovodrun`, a terminal, a shell). */
#include "guard.h"

#include "base/clock.h"
#include "base/patience.h"
#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define GROUP_LIMIT  16384 /* more are not recorded, and are found in /proc only */
#define KILL_SECONDS 5
#define END_SECONDS  3.0

hvd_code guard_init(struct guard *guard, char **argv, hvd_status *status)
{
    *guard = (struct guard){.title = argv[0]};
    for (char **word = argv; *word; word++) {
        size_t bytes = strlen(*word) + 1;
        if (*word == guard->title + guard->title_bytes)
            guard->title_bytes += bytes;
        *word = strdup(*word);
        if (!*word)
            return status_no_memory(status);
    }
    return HVD_OK;
}

/* The system shows the name, so that a kill by the name of one process spares the others. */
static void rename_process(const struct guard *guard, const char *name)
{
    prctl(PR_SET_NAME, name);
    memset(guard->title, 0, guard->title_bytes);
    snprintf(guard->title, guard->title_bytes, "%s", name);
}

static void become_job(struct guard *guard, pid_t parent)
{
    sigset_t ended;
    sigemptyset(&ended);
    sigaddset(&ended, GUARD_PARENT_ENDED);
    sigprocmask(SIG_UNBLOCK, &ended, NULL);
    prctl(PR_SET_PDEATHSIG, GUARD_PARENT_ENDED);
    guard->parent = parent;
    setsid();
    rename_process(guard, "hvd-job");
}

bool guard_parent_ended(const struct guard *guard)
{
    return getppid() != guard->parent;
}

hvd_code guard_end_with_parent(pid_t parent, hvd_status *status)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    /* A parent that has already ended sends no signal. */
    return getppid() == parent
               ? HVD_OK
               : status_set(status, HVD_SYSTEM, "--end-with-parent: process %d has ended, or is no parent",
                            (int)parent);
}

/* Returns false if none is left. */
static bool kill_groups(const struct guard *guard)
{
    bool killed = false;
    for (int i = 0; guard->groups && i < GROUP_LIMIT; i++)
        killed = (guard->groups[i] && kill(-guard->groups[i], SIGKILL) == 0) || killed;
    return killed;
}

/* Waits for the end of both processes by a descriptor of each, so that the processes need none. Without such
 * descriptors (Linux before 5.3) there is no keeper. */
static void keep(const struct guard *guard, pid_t first)
{
    const pid_t both[] = {first, guard->job};
    setsid();
    rename_process(guard, "hvd-keeper");
    for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
        close(file);
    for (int i = 0; i < 2; i++) {
        struct pollfd process = {.fd = (int)syscall(SYS_pidfd_open, both[i], 0), .events = POLLIN};
        if (process.fd < 0 && errno != ESRCH)
            _exit(0);
        while (process.fd >= 0 && poll(&process, 1, -1) < 0 && errno == EINTR)
            ;
    }
    kill_groups(guard);
    _exit(0);
}

/* The child waits until the keeper has been started, so that a limit of processes always affects the same
 * one. */
static hvd_code fork_both(struct guard *guard, hvd_status *status)
{
    int started[2];
    char nothing;
    pid_t own = getpid();
    if (pipe2(started, O_CLOEXEC))
        return status_set_errno(status, errno, "can't start the process that runs the job");
    guard->job = fork();
    int error = errno;
    if (guard->job > 0 && (guard->keeper = fork()) == 0) {
        close(started[0]);
        close(started[1]);
        keep(guard, own);
    }
    close(started[1]);
    while (guard->job == 0 && read(started[0], &nothing, 1) < 0 && errno == EINTR)
        ;
    close(started[0]);
    if (guard->job < 0)
        return status_set_errno(status, error, "can't start the process that runs the job");
    if (guard->job == 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1); /* a child does not inherit it */
        become_job(guard, own);
    }
    return HVD_OK;
}

hvd_code guard_fork(struct guard *guard, hvd_status *status)
{
    static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP};
    sigemptyset(&guard->signals);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) {
        struct sigaction before;
        sigaction(passed_on[i], NULL, &before);
        if (before.sa_handler !=
            SIG_IGN) /* nohup, or a script's background job, ignores it: it stays ignored */
            sigaddset(&guard->signals, passed_on[i]);
    }
    sigaddset(&guard->signals, SIGCHLD);
    sigaddset(&guard->signals, SIGQUIT); /* it is a question: whoever ignores it has not meant this one */
    sigprocmask(SIG_BLOCK, &guard->signals, NULL);
    signal(SIGCHLD, SIG_DFL); /* if it were ignored, the exit codes of children would be lost */
    guard->groups = mmap(NULL, GROUP_LIMIT * sizeof *guard->groups, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (guard->groups == MAP_FAILED)
        return status_set_errno(status, errno, "can't map memory for the list of ranks");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return fork_both(guard, status);
}

const char *signal_name(int signal)
{
    static char text[32];
    const char *name = sigabbrev_np(signal); /* "KILL" */
    if (name)
        snprintf(text, sizeof text, "SIG%s", name);
    else
        snprintf(text, sizeof text, "signal %d", signal);
    return text;
}

int guard_watch(struct guard *guard)
{
    int status = 0, signal;
    pid_t ended;
    while ((ended = waitpid(-1, &status, WNOHANG)) >= 0 && ended != guard->job) {
        if (ended == 0 && sigwait(&guard->signals, &signal) == 0 && signal != SIGCHLD) {
            kill(guard->job, signal);
            kill(guard->job, SIGCONT); /* it may be stopped */
        }
    }
    if (guard->keeper > 0) {
        kill(guard->keeper, SIGKILL);
        waitpid(guard->keeper, NULL, 0);
    }
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    guard_kill_descendants(guard);
    fprintf(stderr, "horovodrun: its process hvd-job (pid %d) was killed by %s, so the job was ended\n",
            (int)guard->job, signal_name(WTERMSIG(status)));
    return 128 + WTERMSIG(status);
}

/* ---- what is killed ------------------------------------------------------------------------------------ */

/* Returns the place in the list; that of group 0 is a free one. */
static pid_t *place_of(const struct guard *guard, pid_t group)
{
    for (int i = 0; guard->groups && i < GROUP_LIMIT; i++) {
        if (guard->groups[i] == group)
            return &guard->groups[i];
    }
    return NULL;
}

void guard_add(struct guard *guard, pid_t group)
{
    pid_t *place = place_of(guard, 0);
    if (place)
        *place = group;
}

void guard_remove(struct guard *guard, pid_t group)
{
    pid_t *place = place_of(guard, group);
    if (place)
        *place = 0;
}

/* Returns 0 for a process that keeps commits for the next job (python/horovod/common/snapshot_server.py). */
static pid_t parent_of(pid_t pid)
{
    static const char spared[] = "(hvd-snapshots)";
    char path[64], text[512];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *name_end = strrchr(text, ')'); /* the name may hold anything */
    if (!name_end || sscanf(name_end, ") %*c %d", &parent) != 1)
        return 0;
    const char *name = strchr(text, '(');
    if (name && strncmp(name, spared, sizeof spared - 1) == 0)
        return 0;
    return parent;
}

/* Returns false if no child is left that this user may kill, or there is no /proc to find it in. */
static bool kill_children(DIR *processes)
{
    bool killed = false;
    if (!processes)
        return false;
    rewinddir(processes);
    for (const struct dirent *entry; (entry = readdir(processes));) {
        pid_t pid = (pid_t)atoi(entry->d_name); /* 0: the name is no number */
        /* Spares what a script has started in the background before it became horovodrun. The child has left
         * that session, so no process of the job is in it. */
        if (pid > 0 && parent_of(pid) == getpid() && getsid(pid) != getsid(0) && kill(pid, SIGKILL) == 0)
            killed = true;
    }
    return killed;
}

/* Kills children only: when they are dead, their children become ours. */
void guard_kill_descendants(const struct guard *guard)
{
    int64_t begin = clock_after(guard->has_agents ? END_SECONDS : 0);
    struct patience patience = patience_of(KILL_SECONDS * CLOCK_SECOND);
    DIR *processes = NULL;
    for (;;) {
        pid_t ended;
        while ((ended = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (ended < 0 || patience_ends(&patience)) /* there is no child left, or the kernel can't end it */
            break;
        if (!processes)
            processes = opendir("/proc");
        if (clock_now() >= begin) {
            /* Groups are first: their members may start others until they are dead. */
            bool groups = kill_groups(guard), children = kill_children(processes);
            if (!groups && !children)
                break;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (processes)
        closedir(processes);
}
