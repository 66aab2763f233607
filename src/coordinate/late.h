/* late.h - for how long a node of the tree has waited for each of its reporters alone. Called with the
 * progress lock held.
 *
 * To add up the waits of requests would count one pause of a rank before 161 gradients 161 times. So each
 * reporter, this rank or a child with its subtree, has one clock, which runs while at least one open round
 * lacks only that reporter. */
#ifndef HVD_COORDINATE_LATE_H
#define HVD_COORDINATE_LATE_H

#include "coordinate/state.h"

struct late {
    int rounds;    /* open rounds that lack only this reporter: its clock runs unless there are none */
    int64_t since; /* when the clock was last started */
    struct lateness lateness;
};

/* This round now lacks only one reporter, whose number plus 1 is `lacks`; 0: several, or none any longer. */
void late_update(struct coordinator *c, struct round *round, int lacks);

/* No round will complete any longer: stops all clocks for good. */
void late_end(struct coordinator *c);

#endif
