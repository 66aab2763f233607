/* links.h - the links among the hosts of a job, from the connections of its ranks. Pure; any thread. */
#ifndef HVD_LAUNCH_LINKS_H
#define HVD_LAUNCH_LINKS_H

#include "survey.h"

/* Sets the links of a survey whose ranks and hosts are known: the two ends of a connection name each other.
 * Connections with an end elsewhere, e.g. to the launcher, are no links. */
hvd_code survey_links_find(struct survey *survey, hvd_status *status);

#endif
