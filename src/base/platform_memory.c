/* platform_memory.c - see platform_memory.h: memfd, mappings, madvise, process_vm_readv. No state; any
 * thread. */
#include "base/platform_memory.h"

#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older ones refuse it */
#endif

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

static int close_and_fail(int fd, int error)
{
    close(fd);
    errno = error;
    return -1;
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
