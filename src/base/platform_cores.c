/* platform_cores.c - see platform_cores.h: sched_setaffinity, and the quota of the control group. No state;
 * any thread. */
#include "base/platform_cores.h"

#include "base/cgroup.h"

#include <errno.h>
#include <sched.h>

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
