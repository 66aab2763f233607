/* cgroup.h - the limits of the container or batch job that this process is in, as the kernel's control groups
 * have them (versions 1 and 2). No state; any thread.
 *
 * `list` and `mount` are the paths of CGROUP_LIST and CGROUP_MOUNT, or of what takes their place in a test.
 */
#ifndef HVD_BASE_CGROUP_H
#define HVD_BASE_CGROUP_H

#include <stdint.h>

#define CGROUP_LIST  "/proc/self/cgroup"
#define CGROUP_MOUNT "/sys/fs/cgroup"

/* How many cores' time the quota of the group, or of one above it, grants; 0: there is none. */
double cgroup_processors(const char *list, const char *mount);

/* How many processes of the group the kernel has killed because memory ran out; -1: unknown. */
int64_t cgroup_memory_kills(const char *list, const char *mount);

#endif
