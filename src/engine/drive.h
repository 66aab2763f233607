/* drive.h - which thread makes progress, and how threads wait. drive.c has the design. */
#ifndef HVD_ENGINE_DRIVE_H
#define HVD_ENGINE_DRIVE_H

#include "engine/context.h"

/* After adding work: wakes the progress thread unless some thread makes progress. */
void drive_notify(struct hvd_context *context);

/* Waits for `word` to become `value`, making progress whenever it has the lock, until `deadline`; true when
 * it did. `idle_since`, where it is 0, is set to the time of the first turn in which nothing moved, if there
 * is one; NULL is fine. */
bool drive_until(struct hvd_context *context, atomic_uint *word, unsigned value, int64_t deadline,
                 int64_t *idle_since);

/* Calls what is still to be called; only when no other thread is left that could make progress. */
void drive_finish_calls(struct hvd_context *context);

hvd_code drive_start_thread(struct hvd_context *context, hvd_status *status);
void drive_stop_thread(struct hvd_context *context); /* fine when it never started */

#endif
