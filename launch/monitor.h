/* monitor.h - looks at all ranks of the job, on all its hosts, when `horovodrun --status`, a
 * scrape, the sampler or a signal requests it. In the launcher; one thread, the loop's.
 *
 * A look sends a request to every host at once. It ends when all have answered, at the latest after
 * MONITOR_SECONDS, or with stacks MONITOR_STACK_SECONDS: a host that is stopped or cut off can't delay it. No
 * rank is disturbed, except for its stack. */
#ifndef HVD_LAUNCH_MONITOR_H
#define HVD_LAUNCH_MONITOR_H

#include "job_views.h"
#include "look.h"

#include "base/patience.h"

#define MONITOR_SECONDS       1.5
#define MONITOR_STACK_SECONDS 3.0 /* ranks take up to PAGES_ANSWER_MILLISECONDS of it */
#define MONITOR_CLIENTS       8

/* Gets the view of the job, and those of jobs that some of its ranks have formed. They are valid during the
 * call; there is none if memory is out, or before the job has processes. */
typedef void monitor_done_fn(const struct job_views *job_views, void *argument);

struct monitor_client {
    enum stacks stacks;
    monitor_done_fn *done;
    void *argument;
};

enum monitor_host { MONITOR_NOT_REQUESTED, MONITOR_REQUESTED, MONITOR_UNREACHED, MONITOR_ANSWERED };

struct monitor {
    struct table *table;
    struct look look; /* at the processes of this one */
    uv_timer_t timer; /* of the look under way */
    struct patience patience;
    struct monitor_client clients[MONITOR_CLIENTS];
    int client_count;
    uint32_t number; /* of the last look */
    bool under_way;
    int64_t began;           /* when the look under way began */
    enum stacks stacks;      /* that the look under way has */
    struct rank_view *views; /* so far */
    int count, capacity;
    enum monitor_host *hosts; /* [host_count] by their index in the table */
    int host_count;           /* hosts that the table had when the look began */
    int end;                  /* one above the last slot that the table had when the look began */
    /* Of an attached job: the ranks that the last look has found, or of which it knew that their hosts do not
     * answer; and whether all hosts that can be reached have answered to it. */
    struct page_identity *known;
    int known_count;
    bool complete;
};

void monitor_init(struct monitor *monitor, struct table *table);
void monitor_free(struct monitor *monitor); /* after the loop has closed its handles */

/* Calls `done` once this call has returned, within the seconds of a look. If a look is under way that has
 * these stacks, it serves this client as well; otherwise the next look does. Fails if there are too many. */
hvd_code monitor_request(struct monitor *monitor, enum stacks stacks, monitor_done_fn *done, void *argument,
                         hvd_status *status);

/* The client with this argument is not called any longer. */
void monitor_forget(struct monitor *monitor, const void *argument);

/* Prints what a look has found on stderr, for whoever has asked by a signal; the argument is the table. */
void monitor_print(const struct job_views *job_views, void *argument);

/* Returns the name of what the words of a command run: "train" for `python train.py` and `python -m train`.
 */
const char *monitor_program(char *const *words, char *name, size_t capacity);

/* ---- answers of hosts, for a starter ------------------------------------------------------------------- */

/* A host has sent the view of a rank; takes ownership of it. */
void monitor_add(struct monitor *monitor, uint32_t number, int host, struct rank_view *view);
/* The host has sent all. */
void monitor_host_done(struct monitor *monitor, uint32_t number, int host);

#endif
