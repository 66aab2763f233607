/* verdict.h - says in one sentence what a job waits for. No state; any thread. */
#ifndef HVD_LAUNCH_VERDICT_H
#define HVD_LAUNCH_VERDICT_H

#include "survey.h"

/* Writes the verdict on a survey whose other fields are complete; returns what it is. */
enum verdict verdict_write(const struct survey *survey, char *text, size_t capacity);

/* Writes what the rank does. */
void verdict_state(const struct sight *rank, char *text, size_t capacity);

#endif
