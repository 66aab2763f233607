/* status_json.h - a view of a job as JSON, for programs. Pure; any thread. */
#ifndef HVD_LAUNCH_STATUS_JSON_H
#define HVD_LAUNCH_STATUS_JSON_H

#include "job_view.h"

#include <stdio.h>

/* Writes one object in one line. docs/watching.md lists its members. */
void status_json_write(const struct job_view *job_view, FILE *file);

#endif
