/* lateness.h - how late each rank of a job is: each node of the tree knows it of its children and of itself
 * (coordinate/late.h). Pure; any thread. */
#ifndef HVD_LAUNCH_LATENESS_H
#define HVD_LAUNCH_LATENESS_H

#include "rank_view.h"

#define LATENESS_LEAST 0.1 /* share of the time that the job runs; with less of it a rank is not late */
#define LATENESS_SECONDS                                                                                     \
    0.5 /* nor with less of these: a job that has just started may lose all of its time */

/* Returns true if a rank is late for which the job has lost that share of its time, and these seconds. */
bool lateness_counts(double share, double seconds);

/* Sets `late_ns`, `late_count` and `late_share` of the views, which are in the order of their ranks: what the
 * whole job has waited for each rank alone. A node counts its child's whole subtree, so what is counted above
 * bounds what is counted below; and no rank is late for longer than it was outside of Horovod until `now`. */
void lateness_find(struct rank_view *ranks, int count, int64_t now);

/* Lowers times and shares to what the program of the rank takes longer than the median: if a network is
 * the limit, the rank whose data arrive last is late without a fault of its own. */
void lateness_excuse(struct rank_view *ranks, int count, int64_t now);

#endif
