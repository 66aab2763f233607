/* mpirun.h - horovodrun --mpi: mpirun starts the ranks. One thread. */
#ifndef HVD_LAUNCH_MPIRUN_H
#define HVD_LAUNCH_MPIRUN_H

#include "hosts.h"
#include "options.h"

/* Replaces this process by an mpirun that starts the command on these hosts; returns on failure only. */
hvd_code mpirun_become(const struct options *options, const struct hosts *hosts, hvd_status *status);

#endif
