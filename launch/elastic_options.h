/* elastic_options.h - the options and variables of an elastic job, as the limits of membership.h. Pure;
 * any thread. */
#ifndef HVD_LAUNCH_ELASTIC_OPTIONS_H
#define HVD_LAUNCH_ELASTIC_OPTIONS_H

#include "hosts.h"
#include "options.h"

#include "membership/membership.h"

/* Returns true if the options request an elastic job. */
bool elastic_requested(const struct options *options);

/* Reads the limits from the options; HVD_INVALID_ARGUMENT: they do not fit together. `hosts` has the fixed
 * hosts, if there are any. */
hvd_code elastic_configure(struct membership_config *config, const struct options *options,
                           const struct hosts *hosts, hvd_status *status);

/* Returns the number of ranks of which statistics are kept. */
int elastic_most(const struct membership_config *config);

#endif
