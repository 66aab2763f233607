/* faults.h - what ranks publish about why they failed, at the rendezvous that this process serves. One
 * thread, the loop's. */
#ifndef HVD_LAUNCH_FAULTS_H
#define HVD_LAUNCH_FAULTS_H

#include "processes.h"

/* Watches an epoch of the job from now on: each record is reported as EVENT_FAULT. */
hvd_code faults_watch(struct table *table, const char *job, int epoch, hvd_status *status);

/* How long the last records may take to arrive once the ranks have ended. */
#define FAULTS_LAST_SECONDS 0.05

/* Reports the records that have arrived; waits for one more at most `seconds` each time. */
void faults_read(struct table *table, double seconds);

/* Ends the watch, before the rendezvous is stopped; the loop must still run to close its handle. */
void faults_close(struct table *table);

/* How the job ended, for horovod.run (--task): the file FOLDER/outcome in JSON. */
struct outcome {
    int exit_code;
    const struct process *first; /* the first cause is this process's, */
    const hvd_fault *cause;      /* or what the engines of others found; or both NULL: unknown */
    const char *verdict;         /* the launcher's last line */
    bool interrupted;            /* by a signal to the launcher, whose number is exit_code - 128 */
};
void faults_write_outcome(const struct table *table, const struct outcome *outcome);

/* The same of a job that horovodrun refuses to start. */
void faults_write_refusal(const char *folder, const char *text);

#endif
