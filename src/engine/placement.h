/* placement.h - the topology of a job: every rank publishes at the rendezvous on which host it is, with what
 * must be equal on all ranks; rank 0 compares, and publishes the table for all, or the first difference. So
 * all ranks hold the same table, or end with the same error. In the thread that joins the job. */
#ifndef HVD_ENGINE_PLACEMENT_H
#define HVD_ENGINE_PLACEMENT_H

#include "base/settings.h"
#include "base/topology.h"
#include "rendezvous/rendezvous.h"

/* `client` is NULL for a job of one rank. HVD_TIMED_OUT names ranks that are missing, HVD_INVALID_ARGUMENT
 * the ranks that differ, and their values. */
hvd_code placement_agree(struct rendezvous_client *client, const struct settings *settings, int64_t deadline,
                         struct topology *topology, hvd_status *status);

#endif
