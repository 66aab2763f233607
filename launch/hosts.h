/* hosts.h - where ranks may run. This version runs them on this host only, so all entries must name it. */
#ifndef HVD_LAUNCH_HOSTS_H
#define HVD_LAUNCH_HOSTS_H

#include "horovod.h"

struct hosts {
    char name[256]; /* as in the user's first entry; "localhost" without any */
    int64_t slots;  /* ranks that may run; 0: not given */
};

hvd_code hosts_parse(struct hosts *hosts, const char *list, hvd_status *status);     /* "localhost:4" */
hvd_code hosts_read_file(struct hosts *hosts, const char *path, hvd_status *status); /* "localhost slots=4" */

/* How many ranks to start: `wanted`, or as many as there are slots when it is 0. */
hvd_code hosts_count_ranks(const struct hosts *hosts, int64_t wanted, int *ranks, hvd_status *status);

#endif
