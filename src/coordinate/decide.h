/* decide.h - the root's part: judges requests that every rank has submitted, composes batches, keeps the
 * cache within its capacity. Called with the progress lock held. */
#ifndef HVD_COORDINATE_DECIDE_H
#define HVD_COORDINATE_DECIDE_H

#include "coordinate/state.h"

/* Judges what is complete; sends and carries out what is decided. */
hvd_code decide(struct coordinator *c, int64_t now, hvd_status *status);

/* When decide has something to do though nothing arrives; INT64_MAX: never. */
int64_t decide_next(const struct coordinator *c);

#endif
