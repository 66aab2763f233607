/* execute.h - the executor: advances the schedules of all running collectives over their links, a part of
 * each in turn. No call blocks. Only the thread that makes progress calls it.
 *
 * A collective's `done` is called from executor_progress or executor_abort; it may call executor_start and
 * executor_abort. A collective that failed for a reason of this rank alone (no memory) leaves its
 * peers waiting: later collectives of its channel no longer start, and the owner must abort. */
#ifndef HVD_COLL_EXECUTE_H
#define HVD_COLL_EXECUTE_H

#include "coll/collective.h"
#include "transport/transport.h"

struct executor;

/* Finds the link to a rank on a channel; NULL: it is being opened, and the lookup is repeated in every turn.
 */
typedef struct link *(*link_lookup_fn)(void *owner, int rank, int channel);

hvd_code executor_create(link_lookup_fn lookup, void *owner, struct executor **executor, hvd_status *status);
void executor_destroy(struct executor *executor); /* after all collectives are done; NULL is fine */

/* Queues a collective; not after an abort. Collectives of a channel start in this order, which must be equal
 * on all ranks. The next one starts when the previous one has planned its last phase: all ranks queue the
 * steps of a link in one order, and several collectives can still run at once. */
void executor_start(struct executor *executor, struct collective *collective);

/* Moves all bytes that can move without waiting; returns true if any moved or a collective ended: call it
 * again. Sets want_read and want_write of the links to the needs of the waiting steps. A broken link is left
 * alone: the mesh reports the loss, and the owner aborts. */
bool executor_progress(struct executor *executor);

bool executor_idle(const struct executor *executor);

/* Returns true if there is work that no peer announces: a step of this rank alone. */
bool executor_is_ready(const struct executor *executor);

/* Ends all collectives with `cause`, without touching links or tensors again. */
void executor_abort(struct executor *executor, const hvd_status *cause);

#endif
