/* join.h - ranks that have no more data count as ready for every name until all ranks have joined
 * (docs/coordination.md, "Join"). Called with the progress lock held. */
#ifndef HVD_COORDINATE_JOIN_H
#define HVD_COORDINATE_JOIN_H

#include "coordinate/state.h"

/* This rank joins with this request. */
hvd_code join_begin(struct coordinator *c, struct pending *request, hvd_status *status);

/* A rank in the subtree of a child has joined, after so many unnamed submissions. */
hvd_code join_receive(struct coordinator *c, int child, int rank, const uint64_t *unnamed,
                      hvd_status *status);

/* At the root: the rank has joined. */
bool join_has(const struct coordinator *c, int rank);

/* At the root: false, with the reason in `text`, when ranks that have joined make this round impossible. */
bool join_permits(const struct coordinator *c, const struct entry *entry, char *text, size_t capacity);

/* At the root, before the text of a mismatch is made: removes joined ranks from the variants, in which a
 * subtree is counted as a whole. */
void join_exclude(const struct coordinator *c, struct entry *entry);

/* At the root: all ranks have joined and nothing is left to run. */
bool join_is_over(const struct coordinator *c);

/* Applies the decision that ends it: all ranks submit again. */
void join_end(struct coordinator *c, int last, const uint64_t *unnamed);

#endif
