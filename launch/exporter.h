/* exporter.h - what a job shows to programs that monitor it: a server of HTTP, a file with metrics, and the
 * file by which Prometheus finds the server. All of it is off unless an option asks for it. One thread, the
 * loop's. */
#ifndef HVD_LAUNCH_EXPORTER_H
#define HVD_LAUNCH_EXPORTER_H

#include "job_views.h"
#include "processes.h"

struct exporter;

/* Opens what the options ask for; table->exporter stays NULL if they ask for nothing. */
hvd_code exporter_open(struct table *table, hvd_status *status);

/* Renews the file of metrics, if there is one, at once. */
void exporter_show(struct table *table, const struct job_views *job_views);

/* Closes the server, and removes the files unless they are kept. The loop must still run to close its
 * handles. */
void exporter_close(struct table *table, bool keeps_files);

#endif
