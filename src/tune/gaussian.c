/* gaussian.c - see gaussian.h. Covariance: Matern 5/2, a length for each dimension. The linear algebra is
 * LAPACK's; numbers of rows are at most GAUSSIAN_POINTS. */
#include "tune/gaussian.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#define SHORTEST     0.05
#define LONGEST      3.0
#define LEAST_NOISE  1e-3 /* keeps equal points from making the matrix singular */
#define USUAL_LENGTH 0.5
#define HUGEST       1e100 /* squares of values must be numbers, too */

/* Fortran's way: everything by address, lengths of texts behind. dpotrf2 is dpotrf without tuned blocks. */
void dpotrf2_(const char *part, const int *n, double *a, const int *rows, int *info, size_t part_length);
void dpotrs_(const char *part, const int *n, const int *columns, const double *a, const int *rows, double *b,
             const int *b_rows, int *info, size_t part_length);
void dtrsv_(const char *part, const char *transposed, const char *unit, const int *n, const double *a,
            const int *rows, double *x, const int *step, size_t part_length, size_t transposed_length,
            size_t unit_length);
/* The library's own version would need Fortran's run-time library for its message. */
void xerbla_(const char *routine, const int *argument, size_t routine_length);

void xerbla_(const char *routine, const int *argument, size_t routine_length)
{
    (void)routine, (void)argument, (void)routine_length;
    assert(!"a wrong argument for LAPACK");
}

void gaussian_init(struct gaussian *process, int dimensions, double noise_limit)
{
    assert(dimensions <= GAUSSIAN_DIMENSIONS);
    memset(process, 0, sizeof *process);
    process->dimensions = dimensions;
    process->noise_limit = fmax(noise_limit, 2 * LEAST_NOISE);
}

bool gaussian_add(struct gaussian *process, const double *point, double value)
{
    if (!(fabs(value) < HUGEST) || process->count == GAUSSIAN_POINTS)
        return false;
    memcpy(process->points[process->count], point, (size_t)process->dimensions * sizeof *point);
    process->values[process->count++] = value;
    return true;
}

/* ---- the likelihood ------------------------------------------------------------------------------------ */

static double covariance(const struct gaussian *process, const double *a, const double *b)
{
    double square = 0;
    for (int i = 0; i < process->dimensions; i++)
        square += (a[i] - b[i]) * (a[i] - b[i]) / (process->lengths[i] * process->lengths[i]);
    double distance = sqrt(5 * square);
    return (1 + distance + distance * distance / 3) * exp(-distance);
}

/* Factor and weights for the present lengths and noise; false when the covariances have no factor. */
static bool solve(struct gaussian *process)
{
    int n = process->count, one = 1, info;
    double *factor = process->factor;
    for (int column = 0; column < n; column++) {
        for (int row = column; row < n; row++)
            factor[column * n + row] = covariance(process, process->points[row], process->points[column]);
        factor[column * n + column] += process->noise * process->noise;
        process->weights[column] = (process->values[column] - process->mean) / process->deviation;
    }
    dpotrf2_("L", &n, factor, &n, &info, 1);
    if (info)
        return false;
    dpotrs_("L", &n, &one, factor, &n, process->weights, &n, &info, 1);
    return true;
}

/* Takes lengths and noise, given as logarithms. Returns how likely they make the values, and how usual such
 * lengths are: with few points this keeps chance from looking like a law. */
static double likelihood(void *owner, const double *logarithms)
{
    struct gaussian *process = owner;
    int n = process->count;
    double sum = 0;
    for (int i = 0; i < process->dimensions; i++) {
        process->lengths[i] = exp(logarithms[i]);
        sum -= pow(logarithms[i] - log(USUAL_LENGTH), 2) / 2;
    }
    process->noise = exp(logarithms[process->dimensions]);
    if (!solve(process))
        return -DBL_MAX;
    for (int i = 0; i < n; i++)
        sum -= process->weights[i] * (process->values[i] - process->mean) / process->deviation / 2 +
               log(process->factor[i * n + i]);
    return sum;
}

static void standardise(struct gaussian *process)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < process->count; i++)
        sum += process->values[i];
    process->mean = sum / process->count;
    for (int i = 0; i < process->count; i++)
        squares += pow(process->values[i] - process->mean, 2);
    process->deviation = sqrt(squares / process->count);
    if (!(process->deviation > 1e-12 * fabs(process->mean)))
        process->deviation = 1; /* all equal */
}

void gaussian_fit(struct gaussian *process)
{
    int dimensions = process->dimensions;
    struct box box = {.dimensions = dimensions + 1};
    double logarithms[BOX_DIMENSIONS];
    assert(process->count);
    standardise(process);
    for (int i = 0; i <= dimensions; i++) {
        box.low[i] = log(i < dimensions ? SHORTEST : LEAST_NOISE);
        box.high[i] = log(i < dimensions ? LONGEST : process->noise_limit);
        logarithms[i] = i < dimensions ? log(USUAL_LENGTH) : (box.low[i] + box.high[i]) / 2;
    }
    maximise(likelihood, process, &box, logarithms);
    likelihood(process, logarithms);
    process->best = -DBL_MAX;
    for (int i = 0; i < process->count; i++) {
        double mean, deviation;
        gaussian_estimate(process, process->points[i], &mean, &deviation);
        process->best = fmax(process->best, (mean - process->mean) / process->deviation);
    }
}

/* ---- estimates ----------------------------------------------------------------------------------------- */

void gaussian_estimate(const struct gaussian *process, const double *point, double *mean, double *deviation)
{
    double near[GAUSSIAN_POINTS], sum = 0, variance = 1;
    int n = process->count, one = 1;
    for (int i = 0; i < n; i++) {
        near[i] = covariance(process, point, process->points[i]);
        sum += near[i] * process->weights[i];
    }
    dtrsv_("L", "N", "N", &n, process->factor, &n, near, &one, 1, 1, 1);
    for (int i = 0; i < n; i++)
        variance -= near[i] * near[i];
    *mean = process->mean + process->deviation * sum;
    *deviation = process->deviation * sqrt(fmax(variance, 0));
}

double gaussian_promise(const struct gaussian *process, const double *point)
{
    double mean, deviation;
    gaussian_estimate(process, point, &mean, &deviation);
    mean = (mean - process->mean) / process->deviation - process->best;
    deviation = fmax(deviation / process->deviation, 1e-9);
    double z = mean / deviation;
    if (z < -20) /* the sum below is 0 there; this goes on in the same direction */
        return log(deviation) - z * z / 2 - log(sqrt(2 * M_PI) * z * z);
    double density = exp(-z * z / 2) / sqrt(2 * M_PI);
    return log(deviation * (z * erfc(-z / M_SQRT2) / 2 + density));
}
