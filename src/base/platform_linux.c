/* platform_linux.c - what platform.h needs of Linux: memfd, eventfd, abstract Unix sockets, SO_PEERCRED,
 * sched_setaffinity, epoll. No state; any thread. */
#include "base/platform.h"

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define SEALS      (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define NEWS_LIMIT 64

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older ones refuse it */
#endif

static int close_and_fail(int fd, int error)
{
    close(fd);
    errno = error;
    return -1;
}

/* ---- memory ------------------------------------------------------------------------------------------ */

ssize_t platform_memory_read(pid_t process, void *to, uint64_t address, size_t length)
{
    struct iovec here = {to, length}, there = {(void *)(uintptr_t)address, length};
    return process_vm_readv(process, &here, 1, &there, 1, 0);
}

/* Returns false if the machine has not that much memory: to allocate it would not fail, the kernel would end
 * this process. */
static bool machine_has(size_t bytes)
{
    if (bytes / (size_t)sysconf(_SC_PAGESIZE) < (size_t)sysconf(_SC_PHYS_PAGES))
        return true;
    errno = ENOMEM;
    return false;
}

static int create_memory(size_t bytes)
{
    return machine_has(bytes) ? memfd_create("horovod", MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
}

/* Unlike ftruncate this allocates the pages, or fails. Returns 0, or an errno value. */
static int allocate(int fd, size_t offset, size_t bytes)
{
    /* Up to Linux 6.8 each signal restarts fallocate, which then never ends under the timer of a profiler. */
    struct held_signals held = signals_hold();
    int error;
    do
        error = posix_fallocate(fd, (off_t)offset, (off_t)bytes);
    while (error == EINTR);
    signals_release(&held);
    return error;
}

static int resize(int fd, size_t bytes)
{
    struct held_signals held = signals_hold();
    int error = ftruncate(fd, (off_t)bytes) ? errno : 0;
    signals_release(&held);
    return error;
}

int platform_memory_create(size_t bytes, bool reserved)
{
    int fd = create_memory(bytes);
    if (fd < 0)
        return -1;
    int error = reserved ? allocate(fd, 0, bytes) : resize(fd, bytes);
    if (!error && fcntl(fd, F_ADD_SEALS, SEALS))
        error = errno;
    return error ? close_and_fail(fd, error) : fd;
}

int platform_memory_create_growing(size_t bytes)
{
    int fd = create_memory(bytes);
    if (fd < 0)
        return -1;
    int error = resize(fd, bytes);
    if (!error && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL))
        error = errno;
    return error ? close_and_fail(fd, error) : fd;
}

bool platform_memory_grow(int fd, size_t bytes)
{
    /* The seal refuses to shrink what another process has made longer meanwhile. */
    if (!machine_has(bytes))
        return false;
    int error = platform_memory_bytes(fd) < bytes ? resize(fd, bytes) : 0;
    errno = error;
    return !error || platform_memory_bytes(fd) >= bytes;
}

bool platform_memory_allocate(int fd, size_t offset, size_t bytes)
{
    errno = allocate(fd, offset, bytes);
    return !errno;
}

bool platform_memory_reserve(void *memory, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)memory / page * page;
    uintptr_t to = ((uintptr_t)memory + bytes + page - 1) / page * page;
    int failed;
    do
        failed = madvise((void *)from, bytes ? to - from : 0, MADV_POPULATE_WRITE);
    while (failed && (errno == EINTR || errno == EAGAIN));
    if (failed && errno == EFAULT)
        errno = ENOMEM;
    return !failed;
}

bool platform_memory_return(void *memory, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)memory + page - 1) / page * page;
    uintptr_t to = ((uintptr_t)memory + bytes) / page * page;
    return from >= to || madvise((void *)from, to - from, MADV_REMOVE) == 0;
}

int platform_memory_open(pid_t process, int fd)
{
    static const char memory[] = "/memfd:horovod";
    char path[64], target[sizeof memory] = "";
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)process, fd);
    /* To open anything else might block, or change it. */
    if (readlink(path, target, sizeof target - 1) < 0)
        return -1;
    if (strcmp(target, memory) != 0) {
        errno = ESTALE;
        return -1;
    }
    return open(path, O_RDWR | O_CLOEXEC);
}

/* Returns true if the memory can't get shorter. Without the seal a peer could shorten the file, and an access
 * to the lost pages would end this process. */
static bool stays(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && seals & F_SEAL_SHRINK;
}

void *platform_memory_map_part(int fd, size_t offset, size_t bytes)
{
    if (!stays(fd) || platform_memory_bytes(fd) < offset + bytes) {
        errno = EINVAL;
        return NULL;
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, MADV_DONTFORK);
    return memory;
}

void *platform_memory_map(int fd, size_t bytes)
{
    if (platform_memory_bytes(fd) == bytes)
        return platform_memory_map_part(fd, 0, bytes);
    errno = EINVAL;
    return NULL;
}

void platform_memory_unmap(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}

size_t platform_memory_bytes(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? (size_t)info.st_size : 0;
}

void platform_memory_inherit(void *memory, size_t bytes)
{
    madvise(memory, bytes, MADV_DOFORK);
}

void platform_memory_keep_writes(void *memory, size_t bytes, int fd)
{
    if (mmap(memory, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED)
        munmap(memory, bytes); /* a fault in the child is better than changes in the parent */
}

void platform_memory_prefer_large_pages(void *memory, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)memory / page * page; /* otherwise the mapping would be cut into three */
    madvise((void *)from, (uintptr_t)memory + bytes - from, MADV_HUGEPAGE);
}

static char *map_pages(size_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

/* Mappings follow one another, so a mapping after an aligned one is usually aligned as well. */
void *platform_pages_alloc(size_t bytes, size_t alignment)
{
    char *pages = map_pages(bytes);
    if (!pages || (uintptr_t)pages % alignment == 0)
        return pages;
    munmap(pages, bytes);
    char *room = map_pages(bytes + alignment);
    if (!room)
        return NULL;
    size_t before = alignment - (uintptr_t)room % alignment; /* 1 ... alignment */
    pages = room + before;
    munmap(room, before);
    if (before < alignment)
        munmap(pages + bytes, alignment - before);
    return pages;
}

void platform_pages_withhold(void *pages, size_t bytes)
{
    madvise(pages, bytes, MADV_DONTFORK);
}

void platform_pages_drop(void *pages, size_t bytes)
{
    madvise(pages, bytes, MADV_DONTNEED);
}

void platform_pages_free(void *pages, size_t bytes)
{
    munmap(pages, bytes);
}

/* ---- events ------------------------------------------------------------------------------------------ */

int platform_event_create(void)
{
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void platform_event_set(int fd)
{
    eventfd_write(fd, 1);
}

void platform_event_clear(int fd)
{
    eventfd_t count;
    eventfd_read(fd, &count);
}

/* ---- local sockets ------------------------------------------------------------------------------------ */

static socklen_t abstract_address(const char *name, struct sockaddr_un *address)
{
    size_t length = strnlen(name, sizeof address->sun_path - 1);
    /* A name that starts with a NUL is abstract: it is in no file system, and has no NUL at its end. */
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

int platform_local_listen(const char *name)
{
    struct sockaddr_un address;
    socklen_t length = abstract_address(name, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (bind(fd, (struct sockaddr *)&address, length) || listen(fd, SOMAXCONN)))
        return close_and_fail(fd, errno);
    return fd;
}

int platform_local_connect(const char *name)
{
    struct sockaddr_un address;
    socklen_t length = abstract_address(name, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, length))
        return close_and_fail(fd, errno);
    return fd;
}

union fd_message {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr header; /* for its alignment */
};

ssize_t platform_send_with_fd(int socket, const void *bytes, size_t length, int fd)
{
    struct iovec part = {(void *)bytes, length};
    union fd_message control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL);
}

ssize_t platform_receive_with_fd(int socket, void *bytes, size_t length, int *fd)
{
    struct iovec part = {bytes, length};
    union fd_message control;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             /* Not CMSG_SPACE: its padding has room for a second one, which would leak. */
                             .msg_controllen = CMSG_LEN(sizeof *fd)};
    *fd = -1;
    ssize_t n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = n < 0 ? NULL : CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof *fd))
        memcpy(fd, CMSG_DATA(header), sizeof *fd);
    else if (n >= 0 && message.msg_flags & MSG_CTRUNC)
        *fd = PLATFORM_FD_LOST;
    return n;
}

bool platform_peer_is_same_user(int socket)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

pid_t platform_peer_process(int socket)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) ? 0 : peer.pid;
}

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

char platform_peer_state(int socket)
{
    struct platform_process process;
    return platform_process(platform_peer_process(socket), &process) ? process.state : '\0';
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

/* ---- threads ----------------------------------------------------------------------------------------- */

int platform_cores(void)
{
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) ? 0 : CPU_COUNT(&cores);
}

double platform_processors(void)
{
    double cores = platform_cores(), quota = cgroup_processors(CGROUP_LIST, CGROUP_MOUNT);
    return quota > 0 && quota < cores ? quota : cores;
}

bool platform_thread_bind(int core)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (core < 0 || core >= CPU_SETSIZE) {
        errno = EINVAL;
        return false;
    }
    CPU_SET(core, &cores);
    return sched_setaffinity(0, sizeof cores, &cores) == 0;
}

bool platform_thread_leave(const int *cores, int count)
{
    cpu_set_t allowed, others;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        return false;
    others = allowed;
    for (int i = 0; i < count; i++) {
        if (cores[i] >= 0 && cores[i] < CPU_SETSIZE)
            CPU_CLR(cores[i], &others);
    }
    /* The first call moves the thread, the second lets it go anywhere again, later and by the system's
     * choice. */
    if (!CPU_COUNT(&others) || sched_setaffinity(0, sizeof others, &others))
        return false;
    return sched_setaffinity(0, sizeof allowed, &allowed) == 0;
}

/* ---- futex -------------------------------------------------------------------------------------------- */

static void wait_on(atomic_uint *word, unsigned expected, int64_t deadline, int operation)
{
    struct timespec until = {.tv_sec = deadline / CLOCK_SECOND, .tv_nsec = deadline % CLOCK_SECOND};
    /* FUTEX_WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC. */
    syscall(SYS_futex, word, operation, expected, deadline == CLOCK_NEVER ? NULL : &until, NULL,
            FUTEX_BITSET_MATCH_ANY);
}

void futex_wait(atomic_uint *word, unsigned expected, int64_t deadline)
{
    wait_on(word, expected, deadline, FUTEX_WAIT_BITSET_PRIVATE);
}

void futex_wake_all(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void futex_wait_shared(atomic_uint *word, unsigned expected, int64_t deadline)
{
    wait_on(word, expected, deadline, FUTEX_WAIT_BITSET);
}

void futex_wake_shared(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- waiting ------------------------------------------------------------------------------------------ */

int platform_poller_create(void)
{
    return epoll_create1(EPOLL_CLOEXEC);
}

static bool poller_set(int poller, int operation, int fd, unsigned what, void *tag)
{
    struct epoll_event event = {.data.ptr = tag};
    if (what & POLLER_READ)
        event.events |= EPOLLIN | EPOLLRDHUP;
    if (what & POLLER_WRITE)
        event.events |= EPOLLOUT;
    if (what & POLLER_EDGE)
        event.events |= EPOLLET;
    return epoll_ctl(poller, operation, fd, &event) == 0;
}

bool platform_poller_add(int poller, int fd, unsigned what, void *tag)
{
    return poller_set(poller, EPOLL_CTL_ADD, fd, what, tag);
}

bool platform_poller_change(int poller, int fd, unsigned what, void *tag)
{
    return poller_set(poller, EPOLL_CTL_MOD, fd, what, tag);
}

void platform_poller_remove(int poller, int fd)
{
    epoll_ctl(poller, EPOLL_CTL_DEL, fd, NULL);
}

int platform_poller_read(int poller, struct poller_news *news, int limit)
{
    struct epoll_event events[NEWS_LIMIT];
    int count = epoll_wait(poller, events, limit < NEWS_LIMIT ? limit : NEWS_LIMIT, 0);
    for (int i = 0; i < count; i++) {
        uint32_t what = events[i].events;
        /* Also readable: the owner detects the end by reading. */
        bool end = what & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
        news[i] = (struct poller_news){events[i].data.ptr, 0};
        news[i].what |= what & EPOLLIN || end ? POLLER_READ : 0;
        news[i].what |= what & EPOLLOUT ? POLLER_WRITE : 0;
        news[i].what |= end ? POLLER_END : 0;
    }
    return count < 0 ? 0 : count;
}

bool platform_poller_wait(int poller, int event, int64_t deadline)
{
    /* An epoll descriptor is readable while it has events. ppoll takes none of them, and waits in
     * nanoseconds. */
    struct pollfd both[] = {{poller, POLLIN, 0}, {event, POLLIN, 0}};
    struct timespec left = {0};
    int64_t nanoseconds = deadline == CLOCK_NEVER ? 0 : deadline - clock_now();
    if (nanoseconds > 0)
        left = (struct timespec){nanoseconds / CLOCK_SECOND, nanoseconds % CLOCK_SECOND};
    return ppoll(both, 2, deadline == CLOCK_NEVER ? NULL : &left, NULL) > 0 && both[1].revents;
}
