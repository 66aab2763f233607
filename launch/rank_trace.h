/* rank_trace.h - writes what all ranks of a job have recorded as one file in Chrome's trace format, which
 * Perfetto opens (docs/timeline.md). Pure but for the stream: any thread. */
#ifndef HVD_LAUNCH_RANK_TRACE_H
#define HVD_LAUNCH_RANK_TRACE_H

#include "watch/history.h"

#include <stdio.h>

struct traced_rank {
    int rank;
    const char *host;
    const struct history *history;
    int64_t ahead; /* by how much its clock is ahead of this host's, in ns */
    int64_t ended; /* when its process ended, clock_now's of this host; 0: it runs, or ended as it should */
    char end[64];  /* "was killed by SIGKILL" */
};

struct rank_trace {
    const char *job;
    const struct traced_rank *ranks; /* [count] */
    int count;
    int64_t now;    /* clock_now's of this host: requests in flight end there */
    int64_t now_at; /* the same as ns since 1970 */
};

struct rank_trace_size {
    int64_t requests;
    int ranks;    /* that have recorded anything */
    int64_t span; /* ns from the first event to the last */
};

/* Returns what the file will hold. */
struct rank_trace_size rank_trace_measure(const struct rank_trace *trace);

/* Writes the whole file, and flushes it. Returns its bytes, 0 if it is a pipe, or -1: errno says why not. */
int64_t rank_trace_write(const struct rank_trace *trace, FILE *file);

/* Says what is in the file of a job of `size` ranks. */
void rank_trace_describe(const struct rank_trace *trace, int size, const char *path, int64_t bytes,
                         char *text, size_t capacity);

#define RANK_TRACE_MOST  400000 /* requests in a trace that somebody has asked for: about 100 MB */
#define RANK_TRACE_BYTES 260    /* of a request in the file, a little more than the mean */

#endif
