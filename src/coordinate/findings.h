/* findings.h - passes on that a rank has found NaN or infinity in what it gives to a request
 * (docs/coordination.md, "Findings"). The members of a set receive it in the order of decisions: before any
 * that depends on a request that the finder submits later. Called with the progress lock held. */
#ifndef HVD_COORDINATE_FINDINGS_H
#define HVD_COORDINATE_FINDINGS_H

#include "coordinate/state.h"

/* This rank has found it. Of many findings between two flushes the first ones are passed on. */
void findings_add(struct coordinator *c, hvd_operation operation, const char *name);

/* A child has reported findings of its subtree. */
hvd_code findings_receive(struct coordinator *c, int child, const struct report *report, hvd_status *status);

/* Puts the findings so far, if there are any, into the report or the decisions in `out`; there are none then.
 */
void findings_report(struct coordinator *c);
void findings_decide(struct coordinator *c);

hvd_code findings_apply(struct coordinator *c, const struct decision *decision, hvd_status *status);

#endif
