/* traces.h - writes what all ranks of a job have recorded last: to the file of --timeline-ranks all at the
 * end, and when the job has failed to a folder that keeps the newest few. One thread, the loop's. */
#ifndef HVD_LAUNCH_TRACES_H
#define HVD_LAUNCH_TRACES_H

#include "processes.h"

/* Checks the settings about timelines. */
hvd_code traces_check(const struct settings *settings, hvd_status *status);

/* Makes the file of --timeline-ranks all, so that a job does not run in vain for it. */
hvd_code traces_prepare(const struct settings *settings, hvd_status *status);

/* Returns which records are wanted at the end of the job; `most` is 0 if none are. */
struct history_window traces_window(const struct table *table, bool failed);

/* Writes what is wanted, and says where it is. The ranks have ended. */
void traces_write(struct table *table, bool failed);

#endif
