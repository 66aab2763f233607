/* mpi_meet.h - how the ranks of an MPI communicator become those of a job. In the thread that joins the job.
 */
#ifndef HVD_BACKEND_MPI_MEET_H
#define HVD_BACKEND_MPI_MEET_H

#include "base/clock.h"
#include "base/settings.h"
#include "horovod.h"

/* Gives the settings rank, size, rendezvous, secret and a job of its own, which the ranks of the communicator
 * exchange; all of them call it. comm: the address of an MPI_Comm; NULL: MPI_COMM_WORLD. It waits for all of
 * them until the deadline or the interrupt; before, MPI_Init_thread waits for as long as MPI likes. */
hvd_code mpi_meet(struct settings *settings, const void *comm, int64_t deadline,
                  const struct interrupt *interrupt, hvd_status *status);

#endif
