/* execute.h - the one executor: advances the schedules of all running jobs over their links, a bit of each at
 * a time. No call blocks. One thread at a time, the one that drives progress. */
#ifndef HVD_COLL_EXECUTE_H
#define HVD_COLL_EXECUTE_H

#include "coll/job.h"
#include "transport/transport.h"

struct executor;

/* Finds the link to a rank on a channel; NULL: there is none (the job then fails with a text). */
typedef struct link *(*link_lookup_fn)(void *owner, int rank, int channel);

hvd_code executor_create(link_lookup_fn lookup, void *owner, struct executor **executor, hvd_status *status);
void executor_destroy(struct executor *executor); /* after all jobs are done; NULL is fine */

/* Queues a job. Jobs of a channel start in this order on every rank: the next one starts when the one before
 * has planned its last phase. */
void executor_start(struct executor *executor, struct job *job);

/* Moves what can be moved; true when anything moved or a job ended. Sets want_read and want_write of the
 * links to what the waiting steps need. */
bool executor_progress(struct executor *executor);

bool executor_idle(const struct executor *executor);

/* Ends all jobs with `cause`, without touching links or tensors again. */
void executor_abort(struct executor *executor, const hvd_status *cause);

#endif
