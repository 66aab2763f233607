/* platform_process.c - see platform_process.h: /proc. No state; any thread. */
#include "base/platform_process.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Reads up to `capacity` - 1 bytes of a file; returns false if it can't be opened. */
static bool read_text(const char *path, char *text, size_t capacity)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    text[fread(text, 1, capacity - 1, file)] = '\0';
    fclose(file);
    return true;
}

/* Reads for how long a thread had a processor, and waited for one. */
static bool read_schedule(pid_t process, pid_t thread, uint64_t *running, uint64_t *runnable)
{
    char path[64], text[128];
    unsigned long long values[2];
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/schedstat", (long)process, (long)thread);
    if (!read_text(path, text, sizeof text) || sscanf(text, "%llu %llu", &values[0], &values[1]) != 2)
        return false;
    *running = values[0];
    *runnable = values[1];
    return true;
}

uint64_t platform_thread_running(pid_t process, pid_t thread)
{
    uint64_t running, runnable;
    return read_schedule(process, thread, &running, &runnable) ? running : 0;
}

bool platform_process(pid_t id, struct platform_process *process)
{
    char path[64], text[1024];
    unsigned long long user, system, start, pages;
    *process = (struct platform_process){0};
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)id);
    if (!read_text(path, text, sizeof text))
        return false;
    /* "pid (name) state ...", see proc(5). */
    const char *name_end = strrchr(text, ')'); /* the name may hold anything */
    if (!name_end || sscanf(name_end,
                            ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu %llu %*s %*s %*s %*s %*s %*s "
                            "%llu %*s %llu",
                            &process->state, &user, &system, &start, &pages) != 5)
        return false;
    process->cpu_ticks = user + system;
    process->start = start;
    process->page_count = pages;
    read_schedule(id, id, &process->running, &process->runnable);
    return true;
}

struct platform_load platform_load(void)
{
    char text[128];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct platform_load load = {0};
    /* "0.20 0.18 0.12 runnable/all newest-id" */
    if (!read_text("/proc/loadavg", text, sizeof text) ||
        sscanf(text, "%*s %*s %*s %d/", &load.runnable) != 1 || cores < 1)
        return (struct platform_load){0};
    load.runnable -= load.runnable > 0;
    load.cores = (int)cores;
    return load;
}

/* Those in which a thread may sleep for long; `file`: their first argument is a descriptor. */
static const struct {
    long number;
    const char *name;
    bool file;
} sleeping_calls[] = {
    {SYS_read, "read", true},
    {SYS_pread64, "pread64", true},
    {SYS_readv, "readv", true},
    {SYS_write, "write", true},
    {SYS_pwrite64, "pwrite64", true},
    {SYS_writev, "writev", true},
    {SYS_openat, "openat", false},
    {SYS_futex, "futex", false},
    {SYS_flock, "flock", true},
    {SYS_fsync, "fsync", true},
    {SYS_nanosleep, "nanosleep", false},
    {SYS_clock_nanosleep, "clock_nanosleep", false},
    {SYS_wait4, "wait4", false},
    {SYS_waitid, "waitid", false},
    {SYS_ppoll, "ppoll", false},
    {SYS_pselect6, "pselect6", false},
    {SYS_epoll_pwait, "epoll_pwait", false},
    {SYS_accept, "accept", true},
    {SYS_accept4, "accept4", true},
    {SYS_connect, "connect", true},
    {SYS_recvfrom, "recvfrom", true},
    {SYS_recvmsg, "recvmsg", true},
    {SYS_sendto, "sendto", true},
    {SYS_sendmsg, "sendmsg", true},
#ifdef SYS_open /* older calls, which newer architectures lack */
    {SYS_open, "open", false},
    {SYS_poll, "poll", false},
    {SYS_select, "select", false},
    {SYS_epoll_wait, "epoll_wait", false},
#endif
};

/* Reads a line of /proc/self/task/<id>/<name>, "" on failure. */
static void read_of_thread(pid_t id, const char *name, char *text, size_t capacity)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/%s", (long)id, name);
    FILE *file = fopen(path, "re");
    if (!file || !fgets(text, (int)capacity, file))
        text[0] = '\0';
    if (file)
        fclose(file);
}

bool platform_thread(pid_t id, struct platform_thread *thread)
{
    char text[512], path[64];
    long number;
    unsigned long argument;
    *thread = (struct platform_thread){0};
    read_of_thread(id, "stat", text, sizeof text);
    const char *name_end = strrchr(text, ')');
    if (!name_end || sscanf(name_end, ") %c", &thread->state) != 1)
        return false;
    read_schedule(getpid(), id, &thread->running, &thread->runnable);
    read_of_thread(id, "syscall", text, sizeof text); /* "running", or the number and the arguments */
    if (strncmp(text, "running", 7) == 0)
        thread->state = 'R'; /* it has been woken since */
    if (sscanf(text, "%ld %lx", &number, &argument) != 2)
        return true;
    for (size_t i = 0; i < sizeof sleeping_calls / sizeof *sleeping_calls; i++) {
        if (sleeping_calls[i].number != number)
            continue;
        snprintf(thread->call, sizeof thread->call, "%s", sleeping_calls[i].name);
        snprintf(path, sizeof path, "/proc/self/fd/%lu", argument);
        if (sleeping_calls[i].file && readlink(path, thread->object, sizeof thread->object - 1) < 0)
            thread->object[0] = '\0';
    }
    return true;
}

void platform_system_identity(char *text, size_t capacity)
{
    char boot[64] = "";
    struct stat network = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file) {
        if (!fgets(boot, sizeof boot, file))
            boot[0] = '\0';
        fclose(file);
    }
    if (!boot[0]) /* without /proc only the name of the host is left */
        gethostname(boot, sizeof boot - 1);
    boot[strcspn(boot, "\n")] = '\0';
    /* Abstract names belong to a network namespace, and containers of one host may have one each. */
    stat("/proc/self/ns/net", &network);
    snprintf(text, capacity, "%s/%llu", boot, (unsigned long long)network.st_ino);
}

/* Containers of one host may share its network, but each has devices of its own. */
void platform_host_identity(char *text, size_t capacity)
{
    struct stat processes = {0};
    platform_system_identity(text, capacity);
    stat("/proc/self/ns/pid", &processes);
    size_t length = strlen(text);
    snprintf(text + length, capacity - length, "/%llu", (unsigned long long)processes.st_ino);
}
