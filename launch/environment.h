/* environment.h - the environment of ranks and agents: of all that may set a variable the first one wins. */
#ifndef HVD_LAUNCH_ENVIRONMENT_H
#define HVD_LAUNCH_ENVIRONMENT_H

#include "processes.h"

struct environment { /* zeroed memory is a valid empty one */
    char **entries;  /* "NAME=value"; ends with NULL */
    char **own;      /* those of them that are freed with it; the others are the launcher's own */
};

/* What is inherited, over it the settings that were given, over that the rank's place in the job. */
hvd_code environment_of_rank(struct environment *environment, const struct process *process,
                             hvd_status *status);
/* What the agents get: without what belongs to a host, its user or session. */
hvd_code environment_for_hosts(struct environment *environment, const struct options *options,
                               hvd_status *status);
void environment_free(struct environment *environment);

/* One list of all, which end with NULL; of entries with one name the first counts, and drops them all if it
 * is a name alone. NULL: out of memory. */
char **environment_merge(char *const *const *lists);

#endif
