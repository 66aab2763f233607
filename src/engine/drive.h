/* drive.h - who drives progress, and how a thread waits. */
#ifndef HVD_ENGINE_DRIVE_H
#define HVD_ENGINE_DRIVE_H

#include "engine/context.h"

/* After a submission: sees to it that somebody drives. */
void drive_notify(struct hvd_context *context);

/* Waits for `word` to become `value`, driving meanwhile whenever it can, until `deadline`; true when it did.
 */
bool drive_until(struct hvd_context *context, atomic_uint *word, unsigned value, int64_t deadline);

/* Calls what is still to be called; only when no other thread is left that could drive. */
void drive_finish_calls(struct hvd_context *context);

hvd_code drive_start_background(struct hvd_context *context, hvd_status *status);
void drive_stop_background(struct hvd_context *context); /* fine when it never started */

#endif
