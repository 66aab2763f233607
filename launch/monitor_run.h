/* monitor_run.h - horovodrun --monitor: metrics, live page and report of a job that something else has
 * started. One thread. */
#ifndef HVD_LAUNCH_MONITOR_RUN_H
#define HVD_LAUNCH_MONITOR_RUN_H

#include "guard.h"
#include "hosts.h"
#include "options.h"

/* Checks the options for it. */
hvd_code monitor_check(const struct options *options, hvd_status *status);

/* Runs until the job has ended, or a signal arrives. `hosts` NULL: this one. Returns the exit code: 0 once
 * the job has ended, however it did; 1 if there is no such job, or it can't be monitored; 2 if there are
 * several. */
int monitor_run(const struct options *options, const struct settings *settings, struct hosts *hosts,
                struct guard *guard);

#endif
