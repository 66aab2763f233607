/* worker.h - runs the collectives of a row whose library blocks: in a thread that waits for the engine anyway
 * (worker_claim, worker_run) or, if there is none, in a thread of its own (worker_delegate). All functions
 * except worker_open and worker_run are called under the progress lock. */
#ifndef HVD_BACKEND_WORKER_H
#define HVD_BACKEND_WORKER_H

#include "backend/backend.h"
#include "horovod.h"

#include <stdbool.h>

/* Starts a worker and adds it to the list of its process set. */
hvd_code worker_open(const struct backend *backend, void *state, int rank, struct worker **first,
                     struct worker **opened, int *descriptor, hvd_status *status);
void worker_close(struct worker *worker);

void worker_start(struct worker *worker, struct collective *collective);
enum backend_progress worker_progress(struct worker *worker, bool *moved);
void worker_abort(struct worker *worker, const hvd_status *cause);

/* Returns the worker of the list `first` whose next collective the calling thread must run by worker_run,
 * without the lock; progress is needed afterwards, which nothing announces. NULL: there is nothing to run. */
struct worker *worker_claim(struct worker *first);
void worker_run(struct worker *claimed);

/* Leaves collectives that no thread has claimed to the workers' own threads. */
void worker_delegate(struct worker *first);

#endif
