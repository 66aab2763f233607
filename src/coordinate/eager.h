/* eager.h - small allreduces whose data travel up in the reports and down in the decision
 * (docs/coordination.md, "Eager data"). Each rank chooses whether its report has data: if any are missing,
 * the root decides a batch, which moves them. Called with the progress lock held. */
#ifndef HVD_COORDINATE_EAGER_H
#define HVD_COORDINATE_EAGER_H

#include "coordinate/state.h"

/* This rank has submitted the request: decides whether the report has its data. */
void eager_submit(struct coordinator *c, struct entry *entry, const struct form *form,
                  struct pending *request);

/* A child has reported the round, which has counted it: stores the data of the report, if it has any. */
hvd_code eager_receive(struct coordinator *c, int child, struct entry *entry, const struct report *report,
                       hvd_status *status);

/* Returns true if the data of all reporters of a complete round have arrived. */
bool eager_is_whole(const struct coordinator *c, const struct entry *entry);

/* Returns the reduction of these data, in the order of places; valid until the next call. NULL: some are
 * missing. */
const uint8_t *eager_reduce(struct coordinator *c, const struct entry *entry);

#endif
