/* job_view.h - all ranks of one job at one moment, compared: which requests wait for which ranks, and the
 * verdict. Made from views, wherever these were taken, and printed as text, JSON or metrics. Pure: no file,
 * no clock; any thread. */
#ifndef HVD_LAUNCH_JOB_VIEW_H
#define HVD_LAUNCH_JOB_VIEW_H

#include "rank_view.h"

#include "watch/page_waitings.h"

#define JOB_VIEW_TEXT 1024

/* Also the exit code of --status. */
enum verdict { VERDICT_HEALTHY = 0, VERDICT_NO_JOB = 1, VERDICT_LATE = 3, VERDICT_BROKEN = 4 };

struct job_view_host {
    char name[128];
    int ranks;
    bool answers;  /* its ranks were seen */
    double silent; /* otherwise: seconds since anything arrived; 0: something has since the look began */
};

/* All that the ranks of one host send to those of another one. Times are in ns. */
struct job_view_link {
    int from, to; /* indexes of hosts */
    uint64_t bytes, retransmitted;
    uint64_t busy, receiver_limited; /* of the connection that was busy for longest: see sockets.h */
};

struct job_view {
    char id[320];
    char name[64];           /* of what runs, "train" for `python train.py`; "": not known */
    int size, epoch;         /* of the job; fewer ranks may be known */
    struct rank_view *ranks; /* [count] in their order */
    int count;
    struct job_view_host *hosts; /* [host_count] in the order of their first ranks */
    int host_count;
    bool whole;                  /* a launcher has asked all hosts; otherwise it is what one host shows */
    int64_t taken;               /* clock_now's */
    int64_t taken_at;            /* the same as ns since 1970 */
    int64_t changing;            /* since when its ranks have been changing, clock_now's; 0: they stay */
    int least;                   /* ranks without which an elastic job waits; 0: not known */
    int64_t started;             /* when the job was started, or its first rank; 0: not known */
    int64_t progress;            /* when an operation last ended on any rank; 0: none has */
    struct page_steps steps;     /* of the rank that has made most */
    uint64_t samples;            /* of all ranks */
    struct job_view_link *links; /* [link_count] by `from`, then by `to` */
    int link_count;
    struct page_waitings waitings;
    enum verdict verdict;
    char text[JOB_VIEW_TEXT]; /* the verdict in one sentence */
};

/* Returns the request that has waited longest, or NULL if none waits for longer than a job needs that runs.
 */
const struct page_waiting *job_view_late(const struct job_view *job_view);

/* Returns true unless the job has made no step for much longer than it needs for one. */
bool job_view_makes_steps(const struct job_view *job_view);

/* Writes ranks as "0-2, 5": those for which `chosen` is `which`. Returns their number. */
int job_view_ranks(const struct job_view *job_view, const uint8_t *chosen, int which, char *text,
                   size_t capacity);

/* Returns the share of the time since hvd_init in which a thread of the rank waited in Horovod. */
double job_view_share_in_horovod(const struct job_view *job_view, const struct rank_view *rank);

/* Returns the time since the first rank has called hvd_init, in seconds. */
double job_view_seconds(const struct job_view *job_view);

/* Returns the name of the rank's host. */
static inline const char *job_view_host_of(const struct rank_view *rank)
{
    return rank->page.identity.host;
}

#endif
