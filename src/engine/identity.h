/* identity.h - finds out which rank of which job this process is, from the program's MPI communicator, the
 * assignments of the epoch, the starter of the process or a list of ranks, and checks the settings that
 * depend on it. In the thread that joins the job. */
#ifndef HVD_ENGINE_IDENTITY_H
#define HVD_ENGINE_IDENTITY_H

#include "base/settings.h"
#include "horovod.h"

/* Completes and checks the context's settings: rank, size and job become those of this rank in this epoch.
 * `mpi_comm`: the address of an MPI_Comm, or NULL. */
hvd_code identity_find(hvd_context *context, const void *mpi_comm, int64_t deadline, hvd_status *status);

/* Enters the epoch as this rank over context->rendezvous, and sets its generation; for a planned rank also
 * the host, before placement_agree. */
hvd_code identity_enter(hvd_context *context, hvd_status *status);

/* If settings->ranks lists ranks, they alone form the job: this rank's number, the size and the job's name
 * become those of the listed ranks. Returns HVD_INVALID_ARGUMENT if this rank is not among them. */
hvd_code subset_apply(struct settings *settings, hvd_status *status);

#endif
