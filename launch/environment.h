/* environment.h - what each rank finds in its environment. */
#ifndef HVD_LAUNCH_ENVIRONMENT_H
#define HVD_LAUNCH_ENVIRONMENT_H

#include "job.h"

struct environment {
    char **entries; /* "NAME=value"; ends with NULL */
    size_t own;     /* so many of them are freed with it; the others behind them are the launcher's own */
};

/* The launcher's environment, the settings that were asked for, and the rank's place in the job. Free it also
 * after a failure. */
hvd_code environment_make(struct environment *environment, const struct rank *rank, hvd_status *status);
void environment_free(struct environment *environment);

#endif
