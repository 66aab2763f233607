/* job.h - the launcher: one job from its start to its exit code. One thread, the loop's. */
#ifndef HVD_LAUNCH_JOB_H
#define HVD_LAUNCH_JOB_H

#include "guard.h"
#include "hosts.h"
#include "options.h"

/* Runs the job to its end; returns horovodrun's exit code. */
int job_run(const struct options *options, const struct settings *settings, struct hosts *hosts,
            struct guard *guard);

#endif
