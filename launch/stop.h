/* stop.h - end ranks: leave them time, then SIGTERM, then SIGKILL; signals to the launcher. */
#ifndef HVD_LAUNCH_STOP_H
#define HVD_LAUNCH_STOP_H

#include "job.h"

hvd_code stop_watch_signals(struct job *job, hvd_status *status);

/* Takes every rank at least to `step`, at once; each step after it follows grace_seconds later. */
void stop_all(struct job *job, enum rank_step step);

/* Waits for what has ended and is no rank: background processes whose parents have ended. Without that they
 * would stay in the process table while the job runs. */
void stop_reap(struct job *job);

/* The rank's process has ended: what it started gets a moment to do so, too. */
void stop_rest(struct rank *rank);

/* The ranks are gone or the output has ended: see whether there is still something to wait for. */
void stop_tick(uv_timer_t *clock);

bool stop_finished(struct job *job);

#endif
