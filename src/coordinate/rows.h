/* rows.h - the numbers of rows of all ranks' tensors, which allgather and alltoall need before they can move
 * data. They go up in the reports and come down with the decision of the batch; each agreed request keeps
 * those of its last batch, so what repeats is not sent again (docs/coordination.md, "Rows"). Called with the
 * progress lock held. */
#ifndef HVD_COORDINATE_ROWS_H
#define HVD_COORDINATE_ROWS_H

#include "coordinate/state.h"

/* A child has reported the round, which has counted it: stores its numbers. `agreement`: by which it has
 * reported; NULL: in full. */
hvd_code rows_receive(struct coordinator *c, int child, struct entry *entry, const struct report *report,
                      const struct agreement *agreement, hvd_status *status);

/* Finds the numbers of this subtree in a complete round. Returns NULL if they are those of `agreed` (NULL:
 * no numbers are agreed), otherwise a writer with the list, valid until the next call; it is empty if the
 * numbers are unknown: the list is too long, or some rank has not sent its part. Sets rows_unknown then. */
const struct wire_writer *rows_find(struct coordinator *c, struct entry *entry, const struct runs *agreed);

/* Carries a decision out: these are the numbers of an agreed request from now on. */
hvd_code rows_agree(struct coordinator *c, struct agreement *agreement, const struct decision *decision,
                    hvd_status *status);

#endif
