/* starvation.h - a job that waits for seats. */
#ifndef HVD_MEMBERSHIP_STARVATION_H
#define HVD_MEMBERSHIP_STARVATION_H

#include "membership/state.h"

/* Reports what is missing now and then; ends the job once that has lasted too long. */
void starve(struct membership *m, int64_t now, int seats, int needed);

#endif
