/* spawn.h - start one rank. */
#ifndef HVD_LAUNCH_SPAWN_H
#define HVD_LAUNCH_SPAWN_H

#include "job.h"

/* `ended` is called when the process has ended. When the command can't be started, rank->exit_code says so
 * as a shell does: 127 not found, 126 not startable. */
hvd_code rank_start(struct rank *rank, uv_exit_cb ended, hvd_status *status);

#endif
