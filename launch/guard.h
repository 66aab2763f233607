/* guard.h - sees to it that no process of the job outlives the launcher, however the launcher ends. */
#ifndef HVD_LAUNCH_GUARD_H
#define HVD_LAUNCH_GUARD_H

#include "horovod.h"

#include <sys/types.h>

struct guard {
    pid_t pid; /* 0: none */
    int alive; /* the writing end of the pipe whose end of file says that the launcher is gone */
};

/* Call it before the first thread is started. `job` is what HOROVOD_JOB says in the ranks' environment. */
hvd_code guard_start(struct guard *guard, const char *job, hvd_status *status);

/* Ends what is left of the job, and returns when nothing is. */
void guard_finish(struct guard *guard);

#endif
