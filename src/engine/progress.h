/* progress.h - one turn of the engine. Driver only. */
#ifndef HVD_ENGINE_PROGRESS_H
#define HVD_ENGINE_PROGRESS_H

#include "engine/context.h"

/* Takes what was submitted and what arrived, decides, moves bytes, finishes. True when anything happened. */
bool progress(struct hvd_context *context);

/* Ends everything with this cause; the first one wins. `lost_rank` -1: no rank is to blame. */
void progress_fail(struct hvd_context *context, int lost_rank, const hvd_status *cause);

/* Notes a cause for progress_fail at the end of this turn; for callbacks out of the executor or a
 * coordinator. */
void progress_fault(struct hvd_context *context, const hvd_status *cause);

/* Every member has said goodbye. */
void progress_closed(struct hvd_context *context);

/* The nearest time at which a turn is needed though nothing arrives. */
int64_t progress_deadline(const struct hvd_context *context);

#endif
