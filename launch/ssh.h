/* ssh.h - the command (ssh, or srun) that starts the agent of a host, and what its failures mean to the user.
 * Any thread. */
#ifndef HVD_LAUNCH_SSH_H
#define HVD_LAUNCH_SSH_H

#include "processes.h"

/* The words of the command that starts the agent of a host; free them and the list. NULL: out of memory. */
char **ssh_words(const struct table *table, const struct host *host);
/* Why that command has ended without an agent, by its exit code and what it wrote to stderr, and what to do.
 */
void ssh_explain(const struct table *table, const struct host *host, int exit_code, char *errors, char *text,
                 size_t capacity);

#endif
