/* close.h - ends a coordinator: in order when a rank leaves, or by a fault (docs/coordination.md, "Leaving",
 * "Faults"). Called with the progress lock held. */
#ifndef HVD_COORDINATE_CLOSE_H
#define HVD_COORDINATE_CLOSE_H

#include "coordinate/state.h"

/* Carries out the decision to close. */
void close_begin(struct coordinator *c, int leaver);

/* Sends LEAVE, SHUTDOWN_DONE or SHUTDOWN_ACK when it is due. */
hvd_code close_advance(struct coordinator *c, hvd_status *status);

/* Closes after SHUTDOWN_ACK was received; the root calls it to send it. */
void close_end(struct coordinator *c);

/* Fails, and sends an abort to all peers except the place `except` (-1: to all). */
void fail(struct coordinator *c, int except, const hvd_status *cause);

#endif
