/* local.h - starts ranks as children of this process. One thread, the loop's. */
#ifndef HVD_LAUNCH_LOCAL_H
#define HVD_LAUNCH_LOCAL_H

#include "job.h"

/* For --output-filename: makes FOLDER/rank.<rank>, with as many digits for every rank, and the two files in
 * it; for --task the file of the result. */
hvd_code rank_open_copies(struct rank *rank, hvd_status *status);

/* Starts the process. When the command can't be started, rank->exit_code is a shell's: 127 not found, 126 not
 * startable. */
hvd_code rank_start(struct rank *rank, hvd_status *status);

#endif
