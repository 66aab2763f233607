/* close.h - how a coordinator ends: in order, when a rank leaves, or by a fault (docs/coordination.md,
 * "Leaving", "Faults"). Called with the progress lock held. */
#ifndef HVD_COORDINATE_CLOSE_H
#define HVD_COORDINATE_CLOSE_H

#include "coordinate/state.h"

/* Carries out the decision to close. */
void close_begin(struct coordinator *c, int leaver);

/* Sends what is due: LEAVE, SHUTDOWN_DONE, SHUTDOWN_ACK. */
hvd_code close_advance(struct coordinator *c, hvd_status *status);

/* SHUTDOWN_ACK was received, or is the root's to send. */
void close_end(struct coordinator *c);

/* Fails, and sends an abort to all neighbours but `except`. */
void fail(struct coordinator *c, int except, const hvd_status *cause);

#endif
