/* guard.h - two processes, so that nothing of a job outlives horovodrun, however it ends: the one that the
 * user started, and its child, which runs the job. Both are subreapers, so all that the ranks start remain
 * their descendants; each kills these when the other one is killed. */
#ifndef HVD_LAUNCH_GUARD_H
#define HVD_LAUNCH_GUARD_H

#include "horovod.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#define GUARD_PARENT_ENDED SIGUSR1 /* what the child gets when its parent has ended */

struct guard {
    char *title; /* where the system finds the command line of this process */
    size_t title_bytes;
    sigset_t signals; /* blocked in both processes, until the child handles them */
    pid_t job;        /* the child; 0 in the child itself */
    bool has_agents;  /* children are connections to agents */
};

/* Remembers the command line's memory. The words become copies: call it before anything points to them. */
hvd_code guard_init(struct guard *guard, char **argv, hvd_status *status);

/* Forks; call it before the first thread is started. With a `parent` that is not 0, SIGTERM comes when it has
 * ended. */
hvd_code guard_fork(struct guard *guard, pid_t parent, hvd_status *status);

/* In the first process: passes signals on, until the child has ended; returns horovodrun's exit code. */
int guard_watch(struct guard *guard);

/* Kills all descendants, whatever group, session or environment they have. Returns when none is left, but
 * after 5 s at the latest. Connections get 3 s of them to end with their stdin, which is closed by then:
 * srun, when it is killed, may leave its tasks behind with a stdin that stays open. */
void guard_kill_descendants(const struct guard *guard);

#endif
