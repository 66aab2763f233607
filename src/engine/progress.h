/* progress.h - one turn of the engine. Under the progress lock. */
#ifndef HVD_ENGINE_PROGRESS_H
#define HVD_ENGINE_PROGRESS_H

#include "horovod.h"

#include <stdbool.h>

/* Takes submissions and received messages, decides, moves bytes, finishes operations. Returns true if
 * anything moved. `now`: the clock as read since the last turn in which anything moved; 0: it is read if
 * needed. */
bool progress(struct hvd_context *context, int64_t now);

/* Hands over again the operations that were held back for operations that have ended. */
void progress_resume(struct hvd_context *context);

/* Ends all operations in all communicators, and refuses later submissions. */
void progress_end(struct hvd_context *context, const hvd_status *cause);

/* Suspends process sets that have been idle for at least this many turns. */
void progress_suspend(struct hvd_context *context, unsigned turns);

/* Returns the earliest time at which a turn is needed even if nothing arrives. */
int64_t progress_deadline(const struct hvd_context *context);

#endif
