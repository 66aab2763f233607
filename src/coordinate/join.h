/* join.h - ranks that have no more data count as ready for every name until all ranks have joined
 * (docs/coordination.md, "Join"). Called with the progress lock held. */
#ifndef HVD_COORDINATE_JOIN_H
#define HVD_COORDINATE_JOIN_H

#include "coordinate/state.h"

/* This rank joins with this request. */
hvd_code join_begin(struct coordinator *c, struct pending *request, hvd_status *status);

/* A rank in the subtree of a child has joined; `unnamed`: the counts of unnamed submissions by then. */
hvd_code join_receive(struct coordinator *c, int child, int rank, const uint64_t *unnamed,
                      hvd_status *status);

/* At the root: returns true if the rank has joined. */
bool join_has(const struct coordinator *c, int rank);

/* At the root: returns false, and writes the reason, if ranks that have joined make this round impossible. */
bool join_permits(const struct coordinator *c, const struct entry *entry, char *text, size_t capacity);

/* At the root, before it makes the text of a mismatch: removes joined ranks from the variants, which count a
 * subtree as a whole. */
void join_exclude(const struct coordinator *c, struct entry *entry);

/* At the root: returns true if all ranks have joined and no request is left to run. */
bool join_is_over(const struct coordinator *c);

/* Carries out the decision that ends the join: all ranks may submit again. */
void join_end(struct coordinator *c, int last, const uint64_t *unnamed);

#endif
