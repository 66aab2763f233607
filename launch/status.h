/* status.h - horovodrun --status: says what the jobs of this user do. One thread. */
#ifndef HVD_LAUNCH_STATUS_H
#define HVD_LAUNCH_STATUS_H

#include "attached.h"

/* Prints the jobs whose id starts with the word that follows the options, or all of them; with --watch again
 * and again. `hosts`: those that the user has given; NULL: none. Returns the exit code: enum verdict, that of
 * the job that is worst off. */
int status_print(const struct options *options, struct attached *hosts);

#endif
