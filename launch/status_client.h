/* status_client.h - asks the launchers of this user's jobs on this host. One thread, with a loop of its own.
 */
#ifndef HVD_LAUNCH_STATUS_CLIENT_H
#define HVD_LAUNCH_STATUS_CLIENT_H

#include "frames.h"
#include "host_pages.h"
#include "job_views.h"

#define LAUNCHER_SECONDS 1.0 /* within which a launcher that runs says that it does */
#define JOB_VIEW_SECONDS 6.0 /* within which it has answered, after a look that it had begun already */

struct launcher {
    struct frames frames;
    char job[JOB_ID_DIGITS + 1];
    int process;             /* 0: not known */
    bool responds, ended;    /* it runs; nothing more is expected of it */
    char why[256];           /* it gave no views of jobs; "": it has */
    struct job_views *found; /* to which its views of jobs are added */
    struct rank_view *views; /* of the view of the job that is arriving */
    int count;
    struct job_view_origin origin;
    struct job_view_host *hosts;
    char id[320], name[64];
};

struct launchers {
    struct launcher *list; /* [count] */
    int count;
};

/* Adds the views of all jobs whose id starts with `job` (NULL: any), and returns the launchers that
 * were asked. */
void launchers_ask(const char *job, enum stacks stacks, struct launchers *launchers,
                   struct job_views *job_views);
void launchers_free(struct launchers *launchers);

/* Connects to the launcher of a job; `frames` has its callbacks. Returns the launcher's process, 0 if it is
 * not known, -1 if it can't be reached. */
int launcher_connect(struct frames *frames, const char *job, uv_loop_t *loop);

/* Handles a frame of a launcher, which is frames->owner. */
void launcher_receive(struct frames *frames, enum frame_kind kind, struct wire_reader *body);

#endif
