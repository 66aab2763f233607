/* stall.h - names that some ranks have submitted and others have not (docs/coordination.md, "Stalls"). Every
 * node checks its open rounds several times per period. It reports a waiting round to its parent after a
 * quarter of the period, and again after every further quarter, so that the root has the details when it
 * warns. Called with the progress lock held. */
#ifndef HVD_COORDINATE_STALL_H
#define HVD_COORDINATE_STALL_H

#include "coordinate/state.h"

/* Finds names that have waited too long: reports them to the parent, at the root to the owner; after
 * stall_shutdown_time the root ends the job. Does nothing before stall_next. */
hvd_code stall_check(struct coordinator *c, int64_t now, hvd_status *status);
int64_t stall_next(const struct coordinator *c);

hvd_code stall_receive(struct coordinator *c, int child, struct wire_reader *reader, hvd_status *status);

/* ---- the warning -----------------------------------------------------------------------------------------
 * Requests that some ranks submitted long ago and others did not, collected one by one, printed as one block.
 * Bounded, whatever the number of requests. */

#define STALL_TEXT   3800 /* bytes that always suffice, and fit into a line of the log */
#define STALL_GROUPS 6
#define STALL_NAMES  6 /* at most this many names of a group are written */

/* Requests for which the same ranks are missing. */
struct stall_group {
    char ranks[96];  /* "ranks 1, 3" */
    char names[400]; /* the first requests, each with its waiting time */
    int count;
};

struct stall_summary { /* zeroed memory is a valid empty one */
    struct stall_group groups[STALL_GROUPS];
    int count;
    int left_out; /* requests that found no group */
    double longest;
};

struct stall_limits {
    double warning, shutdown; /* seconds; shutdown 0: never */
};

/* Adds that `ranks`, such as "rank 3", have not submitted `name` for `seconds`. */
void stall_add(struct stall_summary *summary, const char *ranks, const char *name, double seconds);

/* Writes the block and empties the summary. */
void stall_text(struct stall_summary *summary, int process_set, const struct stall_limits *limits, char *text,
                size_t capacity);

#endif
