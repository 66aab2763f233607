/* job_views.h - makes views of jobs from the views of ranks, wherever these were taken. Pure: no file, no
 * clock; any thread. */
#ifndef HVD_LAUNCH_JOB_VIEWS_H
#define HVD_LAUNCH_JOB_VIEWS_H

#include "job_view.h"

/* What the views do not say. */
struct job_view_origin {
    const char *id, *name;             /* the launcher's job, and what it runs; NULL: there is no launcher */
    int64_t started;                   /* 0: not known */
    int64_t changing;                  /* as in struct job_view */
    int least;                         /* as in struct job_view */
    int epoch;                         /* that runs, of an elastic job, */
    int64_t epoch_began;               /* and when it began */
    int64_t taken, taken_at;           /* when: clock_now's, and as ns since 1970 */
    const struct job_view_host *hosts; /* [host_count] what is known of hosts with these names */
    int host_count;
};

struct job_views {
    struct job_view *list; /* [count] one for each job, by id */
    int count;
};

/* Takes ownership of the views and of their list, also on failure. Of several epochs of a job the newest one
 * counts, of several processes of a rank the one that was started last. */
hvd_code job_views_make(struct rank_view *views, int count, const struct job_view_origin *origin,
                        struct job_views *job_views, hvd_status *status);
/* A job whose ranks have formed several jobs shows the one that has most of them. NULL: there is none. */
const struct job_view *job_views_largest(const struct job_views *job_views);
void job_views_free(struct job_views *job_views); /* zeroed memory is fine */

#endif
