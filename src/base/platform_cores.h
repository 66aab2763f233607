/* platform_cores.h - the cores on which a thread may run, and on which it does. All calls report faults by
 * errno. Any thread. */
#ifndef HVD_BASE_PLATFORM_CORES_H
#define HVD_BASE_PLATFORM_CORES_H

#include <stdbool.h>

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

#endif
