/* failures.h - what follows from the failure of a process, or the loss of a host. */
#ifndef HVD_MEMBERSHIP_FAILURES_H
#define HVD_MEMBERSHIP_FAILURES_H

#include "membership/state.h"

/* Decides what follows from the failure of a process that was lost before. */
void slot_failed(struct membership *m, int64_t now, int slot, bool member);

/* A process has ended without a result: its seat pauses, or is no longer used. */
void seat_failed(struct membership *m, int64_t now, int slot);

/* All processes of the host count as gone, and it is left out for its next pause. */
void host_lose(struct membership *m, int64_t now, int host);

#endif
