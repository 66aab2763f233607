/* epochs.h - when an epoch ends and the next begins, and who is in it. */
#ifndef HVD_MEMBERSHIP_EPOCHS_H
#define HVD_MEMBERSHIP_EPOCHS_H

#include "membership/state.h"

/* Begins the next epoch if the running one has ended and all members wait; issues notices. */
void epochs_settle(struct membership *m, int64_t now);

#endif
