/* platform.h - functions of this operating system: memory files, pages, local sockets that pass descriptors,
 * threads on cores, and waiting for many descriptors. There is one implementation per system; all calls
 * report faults by errno. Any thread. */
#ifndef HVD_BASE_PLATFORM_H
#define HVD_BASE_PLATFORM_H

#include <stdatomic.h>
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
/* What the system shows of a process. */
struct platform_process {
    char state;          /* a letter of ps(1), e.g. 'T' when it is stopped */
    uint64_t start;      /* with the id it identifies the process for as long as the system runs */
    uint64_t cpu_ticks;  /* of all its threads */
    uint64_t page_count; /* of memory that it occupies */
    /* Of its main thread, in ns: on a processor; ready to run, but without one. 0: the system does not say.
     */
    uint64_t running, runnable;
};
/* Returns false if there is no such process, or it can't be seen. */
bool platform_process(pid_t id, struct platform_process *process);
/* Returns for how long one of its threads had a processor, in ns; 0: the system does not say. */
uint64_t platform_thread_running(pid_t process, pid_t thread);
/* How much this host has to do. */
struct platform_load {
    int runnable; /* threads that run or wait for a processor, without the calling one */
    int cores;    /* that are online; 0: unknown */
};
struct platform_load platform_load(void);
/* What the system shows of a thread of this process. */
struct platform_thread {
    char state;
    char call[16];              /* the system call in which it sleeps; "": none, or unknown */
    char object[96];            /* the file of that call, as a path, "pipe:[1]" or "socket:[2]" */
    uint64_t running, runnable; /* as in struct platform_process */
};
/* Returns false if there is no such thread. */
bool platform_thread(pid_t id, struct platform_thread *thread);
/* Its id as seen from here; 0: it can't be seen. */
pid_t platform_peer_process(int socket);
/* Returns the state of that process as a letter of ps(1), e.g. 'T' when it is stopped; '\0': it cannot be
 * seen. */
char platform_peer_state(int socket);

/* Writes an identity of the system: processes with equal texts can reach each other's local sockets. */
void platform_system_identity(char *text, size_t capacity);
/* Writes that identity and what follows it: processes with equal texts also see each other. */
void platform_host_identity(char *text, size_t capacity);

/* Sleeps while *word == expected, until a wake-up from this process or `deadline` (clock_now's; CLOCK_NEVER);
 * may return without either. */
void futex_wait(atomic_uint *word, unsigned expected, int64_t deadline);
void futex_wake_all(atomic_uint *word);
/* The same of a word in memory that processes share. */
void futex_wait_shared(atomic_uint *word, unsigned expected, int64_t deadline);
void futex_wake_shared(atomic_uint *word);

/* The number of cores on which the calling thread may run; 0: unknown. */
int platform_cores(void);
/* How many cores' time its container or cgroup grants this process (base/cgroup.h), at most platform_cores;
 * 0: unknown. */
double platform_processors(void);

/* Binds the calling thread to one core; false: there is no such core, or it is not allowed. */
bool platform_thread_bind(int core);
/* Migrates the calling thread once, to a core that it may use and that is none of these; false: there is
 * none. */
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
/* Returns the news that there are now, at most `limit`. */
int platform_poller_read(int poller, struct poller_news *news, int limit);
/* Blocks until the poller has news, the event (-1: none) is set, or `deadline`; whether the event is set. */
bool platform_poller_wait(int poller, int event, int64_t deadline);

#endif
