/* agents_nodes.h - what the nodes of a job, whose horovodruns have started by themselves, are sent so that
 * they end as the launcher does. One thread, the loop's. */
#ifndef HVD_LAUNCH_AGENTS_NODES_H
#define HVD_LAUNCH_AGENTS_NODES_H

#include "processes.h"

/* Sends a line that the launcher has written to all nodes. */
void agents_said(struct table *table, const char *line, size_t length);

/* Sends them the exit code of the job, and waits a moment for it to leave. */
void agents_conclude(struct table *table, int exit_code);

#endif
