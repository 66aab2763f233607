/* guard.h - lets nothing of a job outlive horovodrun, however it ends. One thread in each process. There are
 * two processes: the one that the user started, and its child, which runs the job. Both are subreapers, so
 * all that the ranks start remain their descendants; each kills these when the other one is killed. A third
 * process, the keeper, waits until both have ended, and kills the process groups of the ranks, but no process
 * that has left its group. Only a process that keeps commits for the next job (HOROVOD_ELASTIC_KEEP) is
 * spared. When all three are killed, the system sends a signal to the ranks (child.c), but not to what they
 * have started. */
#ifndef HVD_LAUNCH_GUARD_H
#define HVD_LAUNCH_GUARD_H

#include "horovod.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

/* The signal that the child gets when its parent has ended. It also resumes a child that was stopped. */
#define GUARD_PARENT_ENDED SIGCONT

struct guard {
    char *title; /* memory of the command line of this process */
    size_t title_bytes;
    sigset_t signals; /* blocked in both processes, until the child handles them */
    pid_t job;        /* the child; 0 in the child itself */
    pid_t keeper;     /* in the first process; -1: it could not be started */
    pid_t parent;     /* in the child: the first process */
    pid_t *groups;    /* process groups of the child's children, in memory of all processes */
    bool has_agents;  /* children are connections to agents */
};

/* Remembers the command line's memory. The words become copies: call it before anything points to them. */
hvd_code guard_init(struct guard *guard, char **argv, hvd_status *status);

/* Forks; call it before the first thread is started. */
hvd_code guard_fork(struct guard *guard, hvd_status *status);

/* --end-with-parent: this process gets SIGTERM when its parent has ended. */
hvd_code guard_end_with_parent(pid_t parent, hvd_status *status);

/* In the child: returns true if the first process has ended. */
bool guard_parent_ended(const struct guard *guard);

/* In the child: the group is killed with the job, until it is removed. */
void guard_add(struct guard *guard, pid_t group);
void guard_remove(struct guard *guard, pid_t group);

/* In the first process: passes signals on, until the child has ended; returns horovodrun's exit code. */
int guard_watch(struct guard *guard);

/* Returns "SIGKILL"; the text is valid until the next call. */
const char *signal_name(int signal);

/* Kills the groups, and all descendants, whatever group, session or environment they have; without /proc only
 * the groups. Returns when none is left, but after 5 s at the latest. Connections get 3 s of these to end
 * with their stdin, which must be closed: srun, when it is killed, may leave its tasks behind with a stdin
 * that stays open. */
void guard_kill_descendants(const struct guard *guard);

#endif
