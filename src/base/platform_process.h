/* platform_process.h - what the system shows of its processes, of the threads of this one, and of itself. Any
 * thread. */
#ifndef HVD_BASE_PLATFORM_PROCESS_H
#define HVD_BASE_PLATFORM_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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

/* Writes an identity of the system: processes with equal texts can reach each other's local sockets. */
void platform_system_identity(char *text, size_t capacity);
/* Writes that identity and what follows it: processes with equal texts also see each other. */
void platform_host_identity(char *text, size_t capacity);

#endif
