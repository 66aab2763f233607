/* subset.h - a job of some of the ranks that the launcher has started. */
#ifndef HVD_ENGINE_SUBSET_H
#define HVD_ENGINE_SUBSET_H

#include "base/settings.h"

/* When settings->ranks lists ranks, they alone form the job: this rank's number in it, the size and the job's
 * name become those of the listed ranks. HVD_INVALID_ARGUMENT when this rank is not among them. */
hvd_code subset_apply(struct settings *settings, hvd_status *status);

#endif
