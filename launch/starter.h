/* starter.h - the table of what starts the processes of a job: `local`, as children of this process, and
 * `agents`, as children of one agent on each host. One thread, the loop's.
 *
 * The order of calls is open, assign, and start for each process. Each of the first two is followed by an
 * event, possibly before it returns. A function that is NULL has nothing to do. */
#ifndef HVD_LAUNCH_STARTER_H
#define HVD_LAUNCH_STARTER_H

#include "host_pages.h"
#include "processes.h"

struct starter_ops {
    /* Prepares the hosts and serves the rendezvous: EVENT_PREPARED or EVENT_HOST_FAILED follows. */
    hvd_code (*open)(struct table *table, hvd_status *status);
    /* Elastic jobs: prepares one host, whose processes may be started after EVENT_HOST_PREPARED; otherwise
     * EVENT_HOST_UNUSABLE follows. NULL: all hosts are prepared. */
    hvd_code (*prepare)(struct table *table, int host, hvd_status *status);
    void (*release)(struct table *table, int host); /* no process is left there, and none follows */
    /* Publishes which slot is which rank: EVENT_ASSIGNED or EVENT_HOST_FAILED follows. */
    hvd_code (*assign)(struct table *table, const struct epoch *epoch, hvd_status *status);
    /* Starts the process of the row. On failure exit_code of the row is a shell's (126, 127), or 0. What is
     * found out later is reported as EVENT_NOT_STARTED. */
    hvd_code (*start)(struct process *process, hvd_status *status);
    /* Sends the signal to the process group; it is not gone. */
    void (*signal)(const struct process *process, int signal);
    /* Returns true if the whole process group has ended, or `given_up`; its number is forgotten then. */
    bool (*gone)(const struct process *process, bool given_up);
    /* Returns the number of the host, and by how much its clock is ahead of this one's; NULL: all are here.
     */
    int (*clock)(const struct process *process, int64_t *ahead);
    /* A child of this process has ended. Not every child has a row. */
    void (*child_ended)(struct table *table, pid_t pid, int exit_code, int signal);
    /* Asks a host for the views of its ranks, which are passed to monitor.h. Returns false if it can't be
     * asked. NULL: all processes are on this host. */
    bool (*look)(const struct table *table, int host, uint32_t number, enum stacks stacks);
    /* Asks a host for what its ranks have recorded; record_query.h is notified once all has arrived. Returns
     * false if it does not answer. NULL as above. */
    bool (*record_query)(const struct table *table, int host, uint32_t number,
                         const struct history_window *window);
    double (*silent)(const struct table *table, int host); /* seconds since anything arrived from it */
    void (*turn)(struct table *table);                     /* after each turn of the loop */
    bool (*connected)(const struct table *table);          /* more output or events may come */
    bool (*sending)(const struct table *table);            /* output is known to be on its way */
    /* Passes on a line that the launcher has written; NULL: nobody else prints it. */
    void (*said)(struct table *table, const char *line, size_t length);
    /* Passes on how the job has ended, before `close`. */
    void (*conclude)(struct table *table, int exit_code);
    void (*close)(struct table *table); /* ends all connections */
    void (*free)(struct table *table);  /* after the loop has closed its handles */
};

extern const struct starter_ops local_starter, agents_starter;

#endif
