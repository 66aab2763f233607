/* platform.h - what only this operating system has: memory files, pages, local sockets that pass descriptors,
 * threads on cores, and waiting for many descriptors. One implementation per system; all calls report faults
 * by errno. */
#ifndef HVD_BASE_PLATFORM_H
#define HVD_BASE_PLATFORM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Nameless shared memory whose size can't change any more. Its pages are there (lack of memory is an error
 * here, not a crash later), or, with `reserved` false, come by platform_memory_reserve. -1 on failure. */
int platform_memory_create(size_t bytes, bool reserved);
/* Allocates the pages of a part of a mapping; false on failure. 0 bytes: whether the system can do that. */
bool platform_memory_reserve(void *memory, size_t bytes);
/* Frees the pages that are entirely within the part, for every process: they read as zeros. */
bool platform_memory_return(void *memory, size_t bytes);
/* Mapped for reading and writing, left out of the children of fork(); NULL on failure, also when the size is
 * another or could still change. */
void *platform_memory_map(int fd, size_t bytes);
void platform_memory_unmap(void *memory, size_t bytes);
size_t platform_memory_bytes(int fd); /* 0: it is none */
/* Children of fork() see it after all. A child must call keep_writes before it touches anything: then what
 * it writes stays its own, page by page, while pages that it has not written go on to show what others write.
 */
void platform_memory_inherit(void *memory, size_t bytes);
void platform_memory_keep_writes(void *memory, size_t bytes, int fd);
/* A hint that what of this private memory was not touched yet be made of large pages. */
void platform_memory_prefer_large_pages(void *memory, size_t bytes);

/* Zeroed pages of this process alone, at a multiple of `alignment`; NULL on failure. */
void *platform_pages_take(size_t bytes, size_t alignment);
void platform_pages_give(void *pages, size_t bytes);
/* They are zeroed pages again, and take no memory until they are touched; `pages` starts at a page's border.
 */
void platform_pages_drop(void *pages, size_t bytes);

/* Reads another process's memory, as far as the system allows: up to `length` bytes; -1 on failure. */
ssize_t platform_memory_read(pid_t process, void *to, uint64_t address, size_t length);

/* A counter that makes its descriptor readable until it is cleared. */
int platform_event_create(void);
void platform_event_set(int fd);
void platform_event_clear(int fd);

/* Stream sockets with a name in the kernel only, gone with their process. Non-blocking, closed on exec. */
int platform_local_listen(const char *name);
int platform_local_connect(const char *name);
/* Like send and recv, with a descriptor attached to the first byte; -1: none. */
ssize_t platform_send_with_fd(int socket, const void *bytes, size_t length, int fd);
ssize_t platform_receive_with_fd(int socket, void *bytes, size_t length, int *fd);
#define PLATFORM_FD_LOST (-2) /* one was attached, but this process may have no more of them */
/* True when the process at the other end runs as this one's user. */
bool platform_peer_is_same_user(int socket);
/* Its id as seen from here; 0: it can't be seen. */
pid_t platform_peer_process(int socket);
/* What that process does, by the letter of ps(1), e.g. 'T' when it is stopped; '\0': it can't be seen. */
char platform_peer_state(int socket);

/* Equal texts: the processes can reach each other's local sockets. */
void platform_host_identity(char *text, size_t capacity);

/* Sleeps while *word == expected, until a wake-up from this process or `deadline` (clock_now's; CLOCK_NEVER);
 * may return without either. */
void futex_wait(atomic_uint *word, unsigned expected, int64_t deadline);
void futex_wake_all(atomic_uint *word);

/* The number of cores on which the calling thread may run; 0: unknown. */
int platform_cores(void);

/* Binds the calling thread to one core; false: there is no such core, or it is not allowed. */
bool platform_thread_bind(int core);
/* Has the calling thread go on elsewhere, once, on a core that it may use and that is none of these; false:
 * there is none. */
bool platform_thread_leave(const int *cores, int count);

/* Waits for many descriptors. POLLER_EDGE: edge-triggered. */
enum { POLLER_READ = 1, POLLER_WRITE = 2, POLLER_END = 4, POLLER_EDGE = 8 };
struct poller_news {
    void *tag;
    unsigned what;
};
int platform_poller_create(void);
bool platform_poller_add(int poller, int fd, unsigned what, void *tag);
void platform_poller_remove(int poller, int fd);
bool platform_poller_change(int poller, int fd, unsigned what, void *tag);
/* What there is now, at most `limit`. */
int platform_poller_take(int poller, struct poller_news *news, int limit);
/* Blocks until the poller has news, the event (-1: none) is set, or `deadline`; whether the event is set. */
bool platform_poller_wait(int poller, int event, int64_t deadline);

#endif
