/* slowness.h - what slows down a job that makes progress: a rank that is late at each step, a rank that waits
 * for a processor, a link between two hosts. Pure; any thread. */
#ifndef HVD_LAUNCH_SLOWNESS_H
#define HVD_LAUNCH_SLOWNESS_H

#include "job_view.h"

/* Returns true if the job loses so much time to this rank that it is worth a word. */
bool slowness_is_late(const struct rank_view *rank);

/* Returns true unless the rank's host has a processor for each thread that could run. */
bool slowness_is_overloaded(const struct rank_view *rank);

/* Adds ": host a has 5 runnable threads on 2 cores" if that is known. */
void slowness_append_load(const struct rank_view *rank, char *text, size_t capacity);

/* Returns true if it does, or if ranks wait now for the rank of this index. */
bool slowness_holds_up(const struct job_view *job_view, int index);

/* Returns how much longer a step takes because of this rank, in seconds; 0: steps are not counted. */
double slowness_per_step(const struct job_view *job_view, const struct rank_view *rank);

/* Returns the link that all others wait for, or NULL: none is slower than the others, or the job does not
 * depend on it. */
const struct job_view_link *slowness_limit(const struct job_view *job_view);

/* Writes one sentence; returns false if nothing of that is the case. */
bool slowness_write(const struct job_view *job_view, char *text, size_t capacity);

#endif
