/* hosts.h - the hosts of a job: which are prepared, which are left out and for how long. */
#ifndef HVD_MEMBERSHIP_HOSTS_H
#define HVD_MEMBERSHIP_HOSTS_H

#include "membership/state.h"

/* For how long to leave a host out that has been left out `times` times; NEVER: forever. */
int64_t host_draw_pause(struct membership *m, int times);

/* How long to wait before trying again what has failed that often in a row. */
int64_t retry_pause(int failures);

/* What discovery has found; false: out of memory. */
bool hosts_offer(struct membership *m, const struct membership_host *hosts, int count);
/* Whether the host has been prepared. */
void host_answers(struct membership *m, int64_t now, int host, bool prepared);

/* Prepares hosts that are wanted, and releases those that are not and have no process. */
void hosts_settle(struct membership *m, int64_t now);

#endif
