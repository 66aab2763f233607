/* metrics.h - writes a view of a job in the text format 0.0.4 of Prometheus, which every scraper reads. Pure.
 */
#ifndef HVD_LAUNCH_METRICS_H
#define HVD_LAUNCH_METRICS_H

#include "changes.h"
#include "job_view.h"

#include <stdio.h>

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* What one host sends to another one, in base units. */
struct metrics_link {
    int from, to; /* indexes of hosts; -1: all others */
    double bytes, busy, receiver_limited, retransmitted;
};

/* Of the whole job. */
struct metrics_totals {
    double steps, samples, checks, divergences;
    double negotiations[PAGE_NEGOTIATIONS], negotiation_seconds;
};

/* The highest values of counters that may fall, since ranks are not seen, or since they are differences of
 * times that were read one after the other. A scraper takes a counter that falls for one that started again.
 * Zeroed: none. */
struct metrics_past {
    int epoch;
    struct metrics_totals totals, before; /* of this epoch, and of all before */
    int count;                            /* of ranks */
    int *processes;                       /* [count] that the next two belong to */
    double *late, *late_count, *blocked;
    struct metrics_link *links; /* [link_count] that were ever seen */
    int link_count;
};
void metrics_past_free(struct metrics_past *past);

/* `changes`: of an elastic job, or NULL. If the job has more ranks than `limit`, the numbers of the ranks of
 * a host are added up, so that a large job does not make more time series than a database should get. */
void metrics_write(FILE *file, const struct job_view *job_view, const struct changes *changes, int limit,
                   struct metrics_past *past);

#endif
