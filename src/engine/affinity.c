/* affinity.c - see affinity.h. */
#include "engine/affinity.h"

#include "base/log.h"
#include "base/platform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int affinity_core(const char *list, int local_rank, int local_size)
{
    int count = 0, own = -1;
    while (*list) {
        char *end;
        errno = 0;
        long core = strtol(list, &end, 10);
        if (end == list || (*end && *end != ',') || core < 0 || core > 1 << 20 || errno)
            return -1;
        if (count++ == local_rank)
            own = (int)core;
        list = end + (*end == ',');
    }
    return count < local_size ? -1 : own;
}

void affinity_apply(const char *list, int rank, int local_rank, int local_size)
{
    if (!*list)
        return;
    int core = affinity_core(list, local_rank, local_size);
    if (core < 0)
        log_error(rank,
                  "HOROVOD_THREAD_AFFINITY=%s is ignored: it has to name one core for each of the %d ranks "
                  "of this host, e.g. 0,2,4,6",
                  list, local_size);
    else if (!platform_thread_bind(core))
        log_error(rank,
                  "HOROVOD_THREAD_AFFINITY=%s is ignored: can't bind the engine's thread to core %d: %s",
                  list, core, strerror(errno));
}
