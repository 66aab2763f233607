/* links.h - the links among the hosts of a job, from the connections of its ranks. Pure; any thread. */
#ifndef HVD_LAUNCH_LINKS_H
#define HVD_LAUNCH_LINKS_H

#include "job_view.h"

/* Sets the links of a view of a job whose ranks and hosts are known: the two ends of a connection name each
 * other. Connections with an end elsewhere, e.g. to the launcher, are no links. */
hvd_code job_view_links_find(struct job_view *job_view, hvd_status *status);

#endif
