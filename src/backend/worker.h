/* worker.h - carries out the collectives of a row whose library blocks: in a thread that waits for the engine
 * (claim, run), or, where there is none, in a thread of its own (delegate). Under the progress lock, except
 * worker_open and worker_run. */
#ifndef HVD_BACKEND_WORKER_H
#define HVD_BACKEND_WORKER_H

#include "backend/backend.h"
#include "horovod.h"

#include <stdbool.h>

/* Adds it to the list of its process set. */
hvd_code worker_open(const struct backend *backend, void *state, int rank, struct worker **first,
                     struct worker **opened, int *descriptor, hvd_status *status);
void worker_close(struct worker *worker);

void worker_start(struct worker *worker, struct collective *collective);
enum backend_progress worker_progress(struct worker *worker, bool *moved);
void worker_abort(struct worker *worker, const hvd_status *cause);

/* Of the list `first`, the one whose next collective the calling thread has to run, without the lock:
 * worker_run; afterwards progress is needed, which nothing announces. NULL: there is nothing to run. */
struct worker *worker_claim(struct worker *first);
void worker_run(struct worker *claimed);

/* Leaves what nobody has claimed to the threads of the list. */
void worker_delegate(struct worker *first);

#endif
