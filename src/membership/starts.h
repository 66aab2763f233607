/* starts.h - starts processes at free seats, and plans the ranks that they are to assume. */
#ifndef HVD_MEMBERSHIP_STARTS_H
#define HVD_MEMBERSHIP_STARTS_H

#include "membership/state.h"

/* Starts newcomers at free seats, up to config.max. */
void starts_settle(struct membership *m, int64_t now);
/* Starts epoch 0 once there are seats enough. */
void starts_first(struct membership *m, int64_t now);
#endif
