/* observe.h - events of requests (watch/timeline.h) for the timeline, if the settings enable it. Without it,
 * an event costs one branch. Under the progress lock, except where it says otherwise. */
#ifndef HVD_ENGINE_OBSERVE_H
#define HVD_ENGINE_OBSERVE_H

#include "coll/collective.h"
#include "coordinate/request.h"
#include "engine/context.h"

struct comm;
struct running_batch;

/* Called before any thread makes progress, and after the last one has ended. */
hvd_code observe_open(struct hvd_context *context, hvd_status *status);
void observe_close(struct hvd_context *context); /* safe on a zeroed context */

static inline bool observed(const struct hvd_context *context)
{
    return context->timeline;
}

void observe_submitted(struct hvd_handle *handle);
/* `rank` is a rank of the communicator's set. */
void observe_ready(const struct comm *comm, const char *name, const struct signature_summary *what, int rank);
void observe_deciding(const struct comm *comm);
void observe_dispatched(const struct running_batch *running);
/* Its data were in decision `sequence`. */
void observe_eager(const struct comm *comm, const struct hvd_handle *handle, uint64_t sequence,
                   uint64_t bytes);
void observe_phase(const struct collective *collective, int phase);
/* Called before any thread can see that the handle is done. */
void observe_finished(const struct hvd_handle *handle, const hvd_status *status);

#endif
