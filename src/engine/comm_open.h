/* comm_open.h - opens and closes the communicator of a process set. comm_open runs in the thread of a user
 * while another thread makes progress, and touches only what it opens: no state that is under the progress
 * lock. */
#ifndef HVD_ENGINE_COMM_OPEN_H
#define HVD_ENGINE_COMM_OPEN_H

#include "base/clock.h"
#include "engine/comm.h"
#include "horovod.h"

/* Connects to the other members; blocks at most until `deadline` or the interrupt (NULL: none). */
hvd_code comm_open(struct hvd_context *context, int id, const int *ranks, int size, int64_t deadline,
                   const struct interrupt *interrupt, struct comm **comm, hvd_status *status);

/* Under the progress lock, or once no other thread makes progress. Call it after its batches have ended; NULL
 * is fine. */
void comm_close(struct comm *comm);

#endif
