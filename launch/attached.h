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
    bool ended; /* the owner sets it if a signal ends its work: hosts are no longer waited for */
};

/* Reaches the hosts, and says which of them can't be asked; table.attached is the start of a job's id that
 * the options give, or "". */
hvd_code attached_open(struct attached *attached, hvd_status *status);
void attached_close(struct attached *attached);

/* Calls hosts again that were lost or could not be reached, and waits a moment for them. */
void attached_call_lost(struct attached *attached);

/* Returns the number of hosts that can't be asked, or no longer. */
int attached_unreached(const struct attached *attached);

/* Returns true if a host can be asked, or is being called. */
bool attached_has_hosts(const struct attached *attached);

/* Runs the loop until something has happened, at most for a moment if there are agents. */
void attached_turn(struct attached *attached);

#endif
