/* verdict.h - says in one sentence what a job waits for. No state; any thread. */
#ifndef HVD_LAUNCH_VERDICT_H
#define HVD_LAUNCH_VERDICT_H

#include "job_view.h"

/* Writes the verdict on a view of a job whose other fields are complete; returns what it is. */
enum verdict verdict_write(const struct job_view *job_view, char *text, size_t capacity);

/* Writes what the rank does. */
void verdict_state(const struct rank_view *rank, char *text, size_t capacity);

#endif
