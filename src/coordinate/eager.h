/* eager.h - small allreduces whose data go up with the reports and come down with the decision
 * (docs/coordination.md, "Eager data"). Whether data came with a report is that rank's choice: where any are
 * missing the root decides a batch, which moves them. Called with the progress lock held. */
#ifndef HVD_COORDINATE_EAGER_H
#define HVD_COORDINATE_EAGER_H

#include "coordinate/state.h"

/* This rank has submitted the request: do its data go with the report? */
void eager_submit(struct coordinator *c, struct entry *entry, const struct form *form,
                  struct pending *request);

/* A child has reported the round, which has counted it: stores the data of the report, if it has any. */
hvd_code eager_receive(struct coordinator *c, int child, struct entry *entry, const struct report *report,
                       hvd_status *status);

/* Of a complete round: the data of all reporters are here. */
bool eager_is_whole(const struct coordinator *c, const struct entry *entry);

/* Their reduction, in the order of places; valid until the next call. NULL: they are not all here. */
const uint8_t *eager_reduce(struct coordinator *c, const struct entry *entry);

#endif
