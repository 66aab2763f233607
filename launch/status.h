/* status.h - horovodrun --status: says what the jobs of this user on this host do. One thread. */
#ifndef HVD_LAUNCH_STATUS_H
#define HVD_LAUNCH_STATUS_H

/* Prints the jobs whose id starts with this text; NULL: all. Returns the exit code: enum verdict, that of the
 * job that is worst off. */
int status_print(const char *job);

#endif
