/* maximise.h - the largest value of a smooth function in a box. No state; any thread. */
#ifndef HVD_TUNE_MAXIMISE_H
#define HVD_TUNE_MAXIMISE_H

#define BOX_DIMENSIONS 8 /* at most */

struct box {
    int dimensions;
    double low[BOX_DIMENSIONS], high[BOX_DIMENSIONS];
};

typedef double (*box_fn)(void *owner, const double *point);

/* From `point`, which lies in the box, uphill to the next maximum; returns the value there. */
double maximise(box_fn function, void *owner, const struct box *box, double *point);

#endif
