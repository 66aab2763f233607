/* report.h - what the launcher tells of the ranks. */
#ifndef HVD_LAUNCH_REPORT_H
#define HVD_LAUNCH_REPORT_H

#include "job.h"

const char *report_signal_name(int signal); /* "SIGKILL"; valid until the next call */

void report_job(struct job *job);                                    /* verbose: what runs where */
void report_rank_start(struct rank *rank, char *const *environment); /* verbose */
void report_rank_end(struct rank *rank);                             /* verbose */
void report_failure(struct rank *rank);                              /* at once */
void report_failure_again(struct job *job); /* at the end, where it is seen, with the last words */

#endif
