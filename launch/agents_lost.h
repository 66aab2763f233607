/* agents_lost.h - hosts of a job that no longer answer. One thread, the loop's. */
#ifndef HVD_LAUNCH_AGENTS_LOST_H
#define HVD_LAUNCH_AGENTS_LOST_H

#include "agents.h"

/* Loses the host: its processes count as gone, since an agent without its launcher kills them. */
void agents_lose(struct remote *remote, enum event_kind kind, const char *why);

/* Loses a host whose connection has ended, or that has been silent for too long. */
void agents_check_end(struct remote *remote);

#endif
