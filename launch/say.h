/* say.h - messages of the launcher and of agents, to their stderr. One thread, the loop's. */
#ifndef HVD_LAUNCH_SAY_H
#define HVD_LAUNCH_SAY_H

#include "job.h"

/* Decides horovodrun's exit code, unless it is decided already. */
void job_decide(struct job *job, int exit_code);

/* One line of the launcher's own on its stderr. */
void job_say(struct job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "ended with exit code 3", "was killed by SIGKILL" (if it is not 0). */
const char *say_outcome(int exit_code, int signal, char *text, size_t capacity);

void say_job(struct job *job);                                    /* verbose: what runs where */
void say_rank_start(struct rank *rank, char *const *environment); /* verbose */
void say_rank_end(struct rank *rank);                             /* verbose */
void say_failure(struct rank *rank);                              /* at once */
void say_first_failure(struct job *job); /* at the end, where it is seen, with the last lines of stderr */

/* The first HorovodInternalError in the rank's last lines on stderr, or NULL: every rank gets the same. */
const char *report_cause(const struct rank *rank);

#endif
