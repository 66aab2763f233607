/* surveys.h - makes surveys from the sights of ranks, wherever these were taken. Pure: no file, no clock; any
 * thread. */
#ifndef HVD_LAUNCH_SURVEYS_H
#define HVD_LAUNCH_SURVEYS_H

#include "survey.h"

/* What the sights do not say. */
struct survey_origin {
    const char *id, *name;           /* the launcher's job, and what it runs; NULL: there is no launcher */
    int64_t started;                 /* 0: not known */
    int64_t taken, taken_at;         /* when: clock_now's, and as ns since 1970 */
    const struct survey_host *hosts; /* [host_count] what is known of hosts with these names */
    int host_count;
};

struct surveys {
    struct survey *list; /* [count] one for each job, by id */
    int count;
};

/* Takes ownership of the sights and of their list, also on failure. Of several epochs of a job the newest one
 * counts, of several processes of a rank the one that was started last. */
hvd_code surveys_make(struct sight *sights, int count, const struct survey_origin *origin,
                      struct surveys *surveys, hvd_status *status);
/* A job whose ranks have formed several jobs shows the one that has most of them. NULL: there is none. */
const struct survey *surveys_largest(const struct surveys *surveys);
void surveys_free(struct surveys *surveys); /* zeroed memory is fine */

#endif
