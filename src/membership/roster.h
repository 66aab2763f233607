/* roster.h - the ranks of an epoch. */
#ifndef HVD_MEMBERSHIP_ROSTER_H
#define HVD_MEMBERSHIP_ROSTER_H

#include "membership/state.h"

/* The ranks of an epoch: members, of those whose seats are no longer offered only `kept`, and newcomers whose
 * state is at least `least`; at most `most` of all. NULL: out of memory. */
struct membership_rank *roster_make(struct membership *m, int64_t now, int kept, enum slot_state least,
                                    int most, int *size);

#endif
