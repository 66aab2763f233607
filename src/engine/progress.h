/* progress.h - one turn of the engine. Under the progress lock. */
#ifndef HVD_ENGINE_PROGRESS_H
#define HVD_ENGINE_PROGRESS_H

#include "horovod.h"

#include <stdbool.h>

/* Takes what was submitted and what arrived, decides, moves bytes, finishes. True when anything happened.
 * `now`: the clock as read since a turn in which something happened; 0: it is read if it is needed. */
bool progress(struct hvd_context *context, int64_t now);

/* Takes again what was held back for operations that have ended. */
void progress_resume(struct hvd_context *context);

/* Ends everything in all communicators, and refuses what is submitted from now on. */
void progress_end(struct hvd_context *context, const hvd_status *cause);

/* Suspends process sets that have been idle for so many turns. */
void progress_suspend(struct hvd_context *context, unsigned turns);

/* The nearest time at which a turn is needed though nothing arrives. */
int64_t progress_deadline(const struct hvd_context *context);

#endif
