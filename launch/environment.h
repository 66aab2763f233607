/* environment.h - the environment of ranks and agents. One thread. Of several sources that set a variable the
 * first one counts. */
#ifndef HVD_LAUNCH_ENVIRONMENT_H
#define HVD_LAUNCH_ENVIRONMENT_H

#include "processes.h"

struct environment { /* zeroed memory is a valid empty one */
    char **entries;  /* "NAME=value"; ends with NULL */
    char **own;      /* the entries that are freed with it; the others belong to the launcher */
};

/* Adds to the inherited variables the settings that were given, and the rank's place in the job. */
hvd_code environment_of_rank(struct environment *environment, const struct process *process,
                             hvd_status *status);
/* Makes the environment that agents get, without variables of a host, its user or session. */
hvd_code environment_for_hosts(struct environment *environment, const struct options *options,
                               hvd_status *status);
void environment_free(struct environment *environment);

/* Returns one list made of several; each ends with NULL. Of entries with one name the first counts; if it is
 * a name alone, all of them are dropped. Returns NULL if memory is out. */
char **environment_merge(char *const *const *lists);

#endif
