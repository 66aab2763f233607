/* fault.h - a rank's record of why it stops, published at the rendezvous for its starter. */
#ifndef HVD_ENGINE_FAULT_H
#define HVD_ENGINE_FAULT_H

#include "engine/context.h"

/* Publishes a record until `deadline` at most. Any thread; if another thread uses the job's client it returns
 * HVD_IN_PROGRESS, and nothing is published. HVD_OK without a rendezvous. */
hvd_code fault_publish(struct hvd_context *context, hvd_fault *fault, int64_t deadline, hvd_status *status);

#endif
