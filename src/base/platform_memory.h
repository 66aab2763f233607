/* platform_memory.h - shared memory without a name, pages of this process alone, and the memory of other
 * processes. All calls report faults by errno. Any thread. */
#ifndef HVD_BASE_PLATFORM_MEMORY_H
#define HVD_BASE_PLATFORM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Creates nameless shared memory of a fixed size. Its pages are allocated here (so lack of memory is an error
 * now, not a crash later), or with `reserved` false by platform_memory_reserve. -1 on failure. */
int platform_memory_create(size_t bytes, bool reserved);
/* Allocates the pages of a part of a mapping; false on failure. 0 bytes: whether the system can do that. */
bool platform_memory_reserve(void *memory, size_t bytes);
/* Frees the pages that are entirely within the part, for every process: they read as zeros. */
bool platform_memory_return(void *memory, size_t bytes);
/* Maps it for reading and writing, but not in children of fork(); NULL on failure, also if the size differs
 * or could still change. */
void *platform_memory_map(int fd, size_t bytes);
/* The same for memory that any process which has it may grow, but none can shrink. Its pages are allocated by
 * platform_memory_allocate. */
int platform_memory_create_growing(size_t bytes);
bool platform_memory_grow(int fd, size_t bytes); /* to at least that size; false on failure */
bool platform_memory_allocate(int fd, size_t offset, size_t bytes);
void *platform_memory_map_part(int fd, size_t offset, size_t bytes);
/* Opens the shared memory that has this descriptor in another process, or in this one; -1 on failure. */
int platform_memory_open(pid_t process, int fd);
void platform_memory_unmap(void *memory, size_t bytes);
size_t platform_memory_bytes(int fd); /* 0: it is none */
/* Lets children of fork() inherit the mapping. A child must call platform_memory_keep_writes before it
 * touches the memory: from then on its writes are private, page by page, while pages that it has not written
 * continue to show what other processes write. */
void platform_memory_inherit(void *memory, size_t bytes);
void platform_memory_keep_writes(void *memory, size_t bytes, int fd);
/* A hint that untouched pages of this private memory should be large ones. */
void platform_memory_prefer_large_pages(void *memory, size_t bytes);

/* Zeroed pages of this process alone, at a multiple of `alignment`; NULL on failure. */
void *platform_pages_alloc(size_t bytes, size_t alignment);
void platform_pages_free(void *pages, size_t bytes);
/* Children of fork() do not have the pages: those of this process stay where a device accesses them. */
void platform_pages_withhold(void *pages, size_t bytes);
/* Makes them zeroed pages again, which take no memory until they are touched; `pages` starts at a page
 * boundary. */
void platform_pages_drop(void *pages, size_t bytes);

/* Reads another process's memory, as far as the system allows: up to `length` bytes; -1 on failure. */
ssize_t platform_memory_read(pid_t process, void *to, uint64_t address, size_t length);

#endif
