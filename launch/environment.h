/* environment.h - what each rank finds in its environment. */
#ifndef HVD_LAUNCH_ENVIRONMENT_H
#define HVD_LAUNCH_ENVIRONMENT_H

#include "job.h"

/* The launcher's environment, the settings that were asked for, and the rank's place in the job. NULL when
 * memory is out. */
char **environment_of(const struct rank *rank);
void environment_free(char **environment); /* NULL is fine */

#endif
