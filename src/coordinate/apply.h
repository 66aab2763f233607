/* apply.h - every rank carries out the decisions of the root, in their order. Called with the progress lock
 * held. */
#ifndef HVD_COORDINATE_APPLY_H
#define HVD_COORDINATE_APPLY_H

#include "coordinate/state.h"

/* Carries out all decisions of a message, from the byte after its kind. */
hvd_code apply_decisions(struct coordinator *c, struct wire_reader *reader, hvd_status *status);

#endif
