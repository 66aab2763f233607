/* maximise.c - see maximise.h. L-BFGS is a library's (liblbfgs). It knows no bounds: it gets the angles of
 * x = low + (high - low) (1 - cos angle) / 2, which turn back at the bounds. */
#include "tune/maximise.h"

#include <lbfgs.h>
#include <math.h>
#include <stddef.h>

#define STEP       1e-5 /* of the difference quotients, in radians */
#define ITERATIONS 25

struct climb {
    box_fn function;
    void *owner;
    const struct box *box;
};

static void point_at(const struct box *box, const double *angles, double *point)
{
    for (int i = 0; i < box->dimensions; i++)
        point[i] = box->low[i] + (box->high[i] - box->low[i]) * (1 - cos(angles[i])) / 2;
}

/* The library looks for minima. */
static double height(const struct climb *climb, const double *angles)
{
    double point[BOX_DIMENSIONS];
    point_at(climb->box, angles, point);
    return -climb->function(climb->owner, point);
}

static double evaluate(void *owner, const double *angles, double *gradient, int dimensions, double step)
{
    const struct climb *climb = owner;
    double around[BOX_DIMENSIONS];
    (void)step;
    for (int i = 0; i < dimensions; i++)
        around[i] = angles[i];
    for (int i = 0; i < dimensions; i++) {
        around[i] = angles[i] + STEP;
        gradient[i] = height(climb, around);
        around[i] = angles[i] - STEP;
        gradient[i] = (gradient[i] - height(climb, around)) / (2 * STEP);
        around[i] = angles[i];
    }
    return height(climb, angles);
}

double maximise(box_fn function, void *owner, const struct box *box, double *point)
{
    struct climb climb = {function, owner, box};
    double angles[BOX_DIMENSIONS], before = function(owner, point), found[BOX_DIMENSIONS];
    for (int i = 0; i < box->dimensions; i++) {
        double part = (point[i] - box->low[i]) / (box->high[i] - box->low[i]);
        angles[i] = acos(1 - 2 * fmin(fmax(part, 1e-3), 1 - 1e-3)); /* at a bound the slope would be 0 */
    }
    lbfgs_parameter_t parameters;
    lbfgs_parameter_init(&parameters);
    parameters.max_iterations = ITERATIONS;
    parameters.epsilon = 1e-3;
    /* However it ended: what counts is whether the point is better. */
    lbfgs(box->dimensions, angles, NULL, evaluate, NULL, &climb, &parameters);
    point_at(box, angles, found);
    double after = function(owner, found);
    if (!(after > before))
        return before;
    for (int i = 0; i < box->dimensions; i++)
        point[i] = found[i];
    return after;
}
