/* ssh.h - makes the command (ssh, or srun) that starts the agent of a host, and explains its failures to the
 * user. One thread. */
#ifndef HVD_LAUNCH_SSH_H
#define HVD_LAUNCH_SSH_H

#include "processes.h"

/* Returns the words of the command that starts the agent of a host; free them by words_free. Returns NULL if
 * memory is out. */
char **ssh_words(const struct table *table, const struct host *host);
/* Explains why that command has ended without an agent, by its exit code and what it wrote to stderr, and
 * says what to do. */
void ssh_explain(const struct table *table, const struct host *host, int exit_code, char *errors, char *text,
                 size_t capacity);

#endif
