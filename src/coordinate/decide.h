/* decide.h - the root's part: judges requests that every rank has submitted, composes batches, keeps the
 * cache within its capacity. Called with the progress lock held. */
#ifndef HVD_COORDINATE_DECIDE_H
#define HVD_COORDINATE_DECIDE_H

#include "coordinate/state.h"

/* Judges complete rounds; sends the decisions and carries them out. */
hvd_code decide(struct coordinator *c, int64_t now, hvd_status *status);

/* Returns when decide must be called even if nothing arrives; INT64_MAX: never. */
int64_t decide_next(const struct coordinator *c);

#endif
