/* progress.h - one turn of the engine. Under the progress lock. */
#ifndef HVD_ENGINE_PROGRESS_H
#define HVD_ENGINE_PROGRESS_H

#include "engine/context.h"

/* Takes what was submitted and what arrived, decides, moves bytes, finishes. True when anything happened.
 * `now`: the clock as read since a turn in which something happened; 0: it is read if it is needed. */
bool progress(struct hvd_context *context, int64_t now);

/* Takes again what was held back for operations that have ended. */
void progress_resume(struct hvd_context *context);

/* A communicator found this cause; unless its set is past caring, it ends everything. The first one wins.
 * `lost_rank`, of the job: the lost one; -1: none. */
void progress_fail(struct comm *comm, int lost_rank, const hvd_status *cause);

/* Notes a cause for progress_fail at the end of this turn; for callbacks out of the executor or a
 * coordinator. */
void progress_fault(struct hvd_context *context, const hvd_status *cause);

/* Ends everything in all communicators, and refuses what is submitted from now on. */
void progress_end(struct hvd_context *context, const hvd_status *cause);

/* Suspends process sets that have been idle for so many turns. */
void progress_suspend(struct hvd_context *context, unsigned turns);

/* A communicator has closed. */
void progress_closed(struct hvd_context *context);

/* The nearest time at which a turn is needed though nothing arrives. */
int64_t progress_deadline(const struct hvd_context *context);

#endif
