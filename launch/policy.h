/* policy.h - decides what an event means for the job. Pure: a policy reads the table and the event, changes
 * nothing, and uses no file, clock or loop. Any thread. */
#ifndef HVD_LAUNCH_POLICY_H
#define HVD_LAUNCH_POLICY_H

#include "processes.h"

struct decision {
    bool end;       /* the job ends with exit_code; never twice */
    bool cause;     /* the event's process is the first that failed */
    int exit_code;  /* horovodrun's */
    enum step step; /* to which all processes are taken; STEP_NONE: they continue */
};

/* Jobs whose ranks stay the same from start to end: the first failure ends the job. */
struct decision policy_static(const struct table *table, const struct event *event);

#endif
