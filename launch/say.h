/* say.h - messages of the launcher and of agents, to their stderr. One thread, the loop's. */
#ifndef HVD_LAUNCH_SAY_H
#define HVD_LAUNCH_SAY_H

#include "processes.h"

/* Writes one line. */
void say(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "ended with exit code 3", "was killed by SIGKILL" (if it is not 0). */
const char *say_outcome(int exit_code, int signal, char *text, size_t capacity);

/* "raised KeyError: 'x' (train.py, line 12, in step) and ended with exit code 1" */
void say_describe(const struct process *process, char *text, size_t capacity);

void say_job(struct table *table);                                         /* verbose: what runs where */
void say_process_start(struct process *process, char *const *environment); /* verbose */
void say_process_end(struct process *process);                             /* verbose */
void say_failure(struct process *process);                                 /* at once */

#define VERDICT_LIMIT 2200

/* At the end, where it is seen. `cause` is why the process has failed, or NULL if it has failed by itself.
 * The verdict gets what the first line says: the record of the first cause. The last lines of stderr follow
 * if the process has left no record; nothing that the ranks have written is repeated otherwise. */
void say_first_failure(const struct process *process, const hvd_fault *cause, char verdict[VERDICT_LIMIT]);

#endif
