/* attached.h - looks at jobs that something else has started, such as mpirun: on this host, or on given ones
 * by their agents. For `horovodrun --status -H` and `horovodrun --monitor`. One thread, with a loop of its
 * own. */
#ifndef HVD_LAUNCH_ATTACHED_H
#define HVD_LAUNCH_ATTACHED_H

#include "monitor.h"
#include "starter.h"

/* Zeroed, except that table.options, settings, guard and happened are set, and hosts: NULL means this one. */
struct attached {
    struct table table; /* the first member: a pointer to one is a pointer to the other */
    struct monitor monitor;
    struct starter_ops starter;
    struct host host; /* this one */
    struct hosts here;
    bool open;
};

/* Reaches the hosts, and says which of them can't be asked; table.attached is the start of a job's id that
 * the options give, or "". */
hvd_code attached_open(struct attached *attached, hvd_status *status);
void attached_close(struct attached *attached);

/* Returns the number of hosts that can't be asked, or no longer. */
int attached_unreached(const struct attached *attached);

/* Runs the loop until something has happened, at most for a moment if there are agents. */
void attached_turn(struct attached *attached);

#endif
