/* gaussian.h - a Gaussian process: what a function that was measured with noise at some points of the unit
 * box is worth elsewhere, and how sure that is. Pure; any thread, one at a time. */
#ifndef HVD_TUNE_GAUSSIAN_H
#define HVD_TUNE_GAUSSIAN_H

#include "tune/maximise.h"

#include <stdbool.h>

#define GAUSSIAN_POINTS     128                  /* at most */
#define GAUSSIAN_DIMENSIONS (BOX_DIMENSIONS - 1) /* the lengths, and the noise */

struct gaussian {
    int dimensions, count;
    double noise_limit; /* the largest standard deviation of the noise, in those of the values */
    double points[GAUSSIAN_POINTS][GAUSSIAN_DIMENSIONS];
    double values[GAUSSIAN_POINTS];
    /* By gaussian_fit. */
    double lengths[GAUSSIAN_DIMENSIONS]; /* over which the function changes */
    double noise;
    double mean, deviation; /* of the values */
    double best;            /* the largest estimate at a measured point, in deviations from the mean */
    double factor[GAUSSIAN_POINTS * GAUSSIAN_POINTS]; /* Cholesky's, of the covariances */
    double weights[GAUSSIAN_POINTS];
};

void gaussian_init(struct gaussian *process, int dimensions, double noise_limit);

/* False, and nothing is added: the value is no number, or far too large for one, or there are GAUSSIAN_POINTS
 * already. */
bool gaussian_add(struct gaussian *process, const double *point, double value);

/* Lengths and noise under which the values are most likely; to be called after additions. */
void gaussian_fit(struct gaussian *process);

/* Of at least one point. The deviation is that of the function, without the noise. */
void gaussian_estimate(const struct gaussian *process, const double *point, double *mean, double *deviation);

/* The logarithm of the improvement over `best` that is to be expected at a point. */
double gaussian_promise(const struct gaussian *process, const double *point);

#endif
