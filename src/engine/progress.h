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

/* ---- drive -----------------------------------------------------------------------------------------------
 * Which thread makes progress, and how threads wait. drive.c has the design. */

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

/* ---- heartbeat -------------------------------------------------------------------------------------------
 * Detects peers that do not answer. While this rank waits long it pings every peer that sends
 * nothing. The engine of a living process answers whatever its program does, so a peer without an answer is
 * stopped or unreachable. Unlike the stall report this needs no working coordinator: the peer may be rank 0.
 * Under the progress lock. */

/* When the next check is due; called before this rank sleeps. `quiet`: no operation waits. */
int64_t heartbeat_deadline(struct hvd_context *context, bool quiet);

/* Does nothing before the deadline; then pings, warns, and reports who is silent for too long to the
 * coordinator of all ranks, which ends the job. */
void heartbeat_check(struct hvd_context *context);

/* Attributes the loss of a rank of the job, on another host, to a silence before it: the rank's own, for the
 * whole limit, which is reported, or one that was reported already. Either ends the job. False: there was
 * none. */
bool heartbeat_attribute_loss(struct comm *comm, int peer);

/* Writes the cause of that end. */
void heartbeat_explain(const struct comm *comm, const struct silence *silence, hvd_status *cause);

/* How long the ranks settle which are silent, in ns. */
int64_t heartbeat_settling(const struct settings *settings);

/* ---- affinity --------------------------------------------------------------------------------------------
 * Binds the progress thread to a core (HOROVOD_THREAD_AFFINITY). */

/* Cores by local rank: the one of `local_rank`, or -1 when the list makes no sense or has less than
 * `local_size` entries. */
int affinity_core(const char *list, int local_rank, int local_size);

/* Binds the calling thread when `list` is not empty. A list that can't be followed is an error in the log,
 * and the thread runs anywhere. */
void affinity_apply(const char *list, int rank, int local_rank, int local_size);

#endif
