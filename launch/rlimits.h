/* rlimits.h - checks whether the limits of a host leave room for its ranks. One thread. */
#ifndef HVD_LAUNCH_RLIMITS_H
#define HVD_LAUNCH_RLIMITS_H

#include "processes.h"

/* Checks that the limits of open files and processes leave room for `count` ranks. This process either starts
 * them, or only keeps what they print. It checks the least that they need, since other programs are not
 * known. */
hvd_code rlimits_check(const struct table *table, int count, bool starts, hvd_status *status);
/* Returns true if they leave room for a page for each of `count` ranks in addition. */
bool rlimits_allow_page(const struct table *table, int count);

#endif
