/* stop.h - ends ranks: by themselves within a time limit, then by SIGTERM, then SIGKILL; and signals to the
 * launcher. One thread, the loop's. */
#ifndef HVD_LAUNCH_STOP_H
#define HVD_LAUNCH_STOP_H

#include "job.h"

hvd_code stop_watch_signals(struct job *job, hvd_status *status);

/* Takes every rank at least to `step`, at once; each step after it follows grace_seconds later. */
void stop_all(struct job *job, enum rank_step step);

/* What SIGINT, SIGTERM or SIGHUP means, sent to the launcher (where is "") or to an agent ("host b: "). */
void stop_by_signal(struct job *job, const char *where, int signal);

/* The rank's process has ended: what it started gets a moment to do so, too. */
void stop_rest(struct rank *rank);

/* The ranks are gone or the output has ended: see whether there is still something to wait for. */
void stop_tick(uv_timer_t *clock);

bool stop_finished(struct job *job);

#endif
