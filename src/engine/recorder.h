/* recorder.h - what this rank writes into its page (watch/page.h) of itself and its requests. Under the
 * progress lock, except where it says otherwise. */
#ifndef HVD_ENGINE_RECORDER_H
#define HVD_ENGINE_RECORDER_H

#include "engine/context.h"

struct batch;
struct comm;
struct hvd_handle;

/* Opens the page. Called once rank, size and job are known, before other threads use the context. */
hvd_code recorder_open(struct hvd_context *context, hvd_status *status);

/* The request was named, and given to the coordinator or held back. Called again when it is given. */
void recorder_submitted(struct comm *comm, struct hvd_handle *handle);

/* All ranks have submitted these requests. */
void recorder_decided(struct hvd_context *context, const struct batch *batch);

/* Called before any thread can see that the handle is done. */
void recorder_finished(const struct hvd_handle *handle);

/* Around a sleep of a thread that waits for this word. Any thread. */
unsigned recorder_sleeps(struct hvd_context *context, const atomic_uint *word);
void recorder_woken(struct hvd_context *context, unsigned caller);
/* In place of recorder_woken, where the thread waits still. */
void recorder_paused(struct hvd_context *context, unsigned caller);

#endif
