/* mpi_meet.h - makes the ranks of an MPI communicator the ranks of a job. Runs in the thread that joins the
 * job. */
#ifndef HVD_BACKEND_MPI_MEET_H
#define HVD_BACKEND_MPI_MEET_H

#include "base/clock.h"
#include "base/settings.h"
#include "horovod.h"

/* Sets rank, size, rendezvous, secret and a new job, which the ranks of the communicator exchange; all of
 * them call it. comm: the address of an MPI_Comm; NULL: MPI_COMM_WORLD. Waits for all of them until the
 * deadline or the interrupt; MPI_Init_thread, before that, waits as long as MPI does. */
hvd_code mpi_meet(struct settings *settings, const void *comm, int64_t deadline,
                  const struct interrupt *interrupt, hvd_status *status);

#endif
