/* drive.h - which thread makes progress, and how threads wait; drive.c has the design. Any thread. */
#ifndef HVD_ENGINE_DRIVE_H
#define HVD_ENGINE_DRIVE_H

#include "horovod.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* After adding work: wakes the progress thread unless some thread makes progress. */
void drive_notify(struct hvd_context *context);

/* Waits for `word` to become `value`, making progress whenever it has the lock, until `deadline`; true when
 * it did. `idle_since`, where it is 0, is set to the time of the first turn in which nothing moved, if there
 * is one; NULL is fine. */
bool drive_until(struct hvd_context *context, atomic_uint *word, unsigned value, int64_t deadline,
                 int64_t *idle_since);

/* The same for a thread that must not wait: returns at once where another thread makes progress. */
void drive_once(struct hvd_context *context, atomic_uint *word, unsigned value, int64_t deadline);

/* Calls what is still to be called; only when no other thread is left that could make progress. */
void drive_finish_calls(struct hvd_context *context);

hvd_code drive_start_thread(struct hvd_context *context, hvd_status *status);
void drive_stop_thread(struct hvd_context *context); /* fine when it never started */

/* ---- affinity --------------------------------------------------------------------------------------------
 * Binds the progress thread to a core (HOROVOD_THREAD_AFFINITY). */

/* Cores by local rank: the one of `local_rank`, or -1 when the list makes no sense or has less than
 * `local_size` entries. */
int affinity_core(const char *list, int local_rank, int local_size);

/* Binds the calling thread when `list` is not empty. A list that can't be followed is an error in the log,
 * and the thread runs anywhere. */
void affinity_apply(const char *list, int rank, int local_rank, int local_size);

#endif
