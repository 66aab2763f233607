/* say.h - messages of the launcher and of agents, to their stderr. One thread, the loop's. */
#ifndef HVD_LAUNCH_SAY_H
#define HVD_LAUNCH_SAY_H

#include "processes.h"

/* Writes one line. */
void say(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "ended with exit code 3", "was killed by SIGKILL" (if it is not 0). */
const char *say_outcome(int exit_code, int signal, char *text, size_t capacity);

void say_job(struct table *table);                                         /* verbose: what runs where */
void say_process_start(struct process *process, char *const *environment); /* verbose */
void say_process_end(struct process *process);                             /* verbose */
void say_failure(struct process *process);                                 /* at once */
/* At the end, where it is seen, with the last lines of stderr. */
void say_first_failure(const struct process *process);

/* Returns the first HorovodInternalError in the last lines on stderr, which is the same on every rank, or
 * NULL. */
const char *report_cause(const struct process *process);

#endif
