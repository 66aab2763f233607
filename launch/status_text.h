/* status_text.h - a view of a job as text for people. Pure; any thread. */
#ifndef HVD_LAUNCH_STATUS_TEXT_H
#define HVD_LAUNCH_STATUS_TEXT_H

#include "job_view.h"

#include <stdio.h>

/* Writes verdict, job, what it waits for, and a table of its ranks. */
void status_text_write(const struct job_view *job_view, FILE *file);

#endif
