/* rlimits.h - whether the limits of a host leave room for its ranks. */
#ifndef HVD_LAUNCH_RLIMITS_H
#define HVD_LAUNCH_RLIMITS_H

#include "processes.h"

/* Whether the limits of open files and processes leave room for `count` ranks, which this process
 * starts, or only keeps what they print. It checks what they need at least: what else runs is not known. */
hvd_code rlimits_check(const struct table *table, int count, bool starts, hvd_status *status);

#endif
