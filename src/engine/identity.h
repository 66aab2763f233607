/* identity.h - which rank of which job this process is: as the program's MPI communicator, the assignments of
 * the epoch, what has started the process, or a list of ranks says; and the settings that make sense only
 * with that. In the thread that joins the job. */
#ifndef HVD_ENGINE_IDENTITY_H
#define HVD_ENGINE_IDENTITY_H

#include "base/settings.h"
#include "horovod.h"

/* Completes and checks the context's settings: rank, size and job become those of this rank in this epoch.
 * `mpi_comm`: the address of an MPI_Comm, or NULL. */
hvd_code identity_find(hvd_context *context, const void *mpi_comm, int64_t deadline, hvd_status *status);

/* When settings->ranks lists ranks, they alone form the job: this rank's number in it, the size and the job's
 * name become those of the listed ranks. HVD_INVALID_ARGUMENT when this rank is not among them. */
hvd_code subset_apply(struct settings *settings, hvd_status *status);

#endif
