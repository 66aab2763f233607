/* search.h - where in the unit box to measure next. Pure; any thread, one at a time. */
#ifndef HVD_TUNE_SEARCH_H
#define HVD_TUNE_SEARCH_H

#include "tune/gaussian.h"

/* The first few are spread over the box, whatever was measured; from then on, where the most improvement is
 * to be expected. `number` counts the calls. */
void search_next(struct gaussian *process, int number, double *point);

#endif
