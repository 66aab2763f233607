/* changes.h - counts of how the ranks of an elastic job have changed, for metrics and the report. */
#ifndef HVD_LAUNCH_CHANGES_H
#define HVD_LAUNCH_CHANGES_H

#include <stdint.h>

/* By the bits of a notice (membership.h: LESS, MORE): why an epoch has ended. */
enum change_kind { CHANGE_LOST, CHANGE_REMOVED, CHANGE_ADDED, CHANGE_MIXED, CHANGE_KINDS };

#define CHANGE_NAMES                                                                                         \
    {                                                                                                        \
        "lost", "removed", "added", "mixed"                                                                  \
    }

struct changes {
    int resets[CHANGE_KINDS]; /* epochs after the first, by why the one before has ended */
    int lost, added;          /* ranks */
    int64_t interrupted; /* in all, from the first sign that an epoch ends to the beginning of the next; ns */
    int64_t since;       /* that sign, of the running epoch, clock_now's; 0: there was none */
    int64_t began;       /* the running epoch; 0: it is the first one */
    unsigned noticed;    /* to the running epoch: bits of membership.h */
};

#endif
