/* search.c - see search.h. */
#include "tune/search.h"

#include <math.h>
#include <string.h>

#define CANDIDATES 256 /* looked at; the most promising ones are climbed from */
#define CLIMBS     4

/* The sequence of Halton (1960) covers the box evenly, however many points of it are taken. */
static void spread(int index, int dimensions, double *point)
{
    static const int primes[GAUSSIAN_DIMENSIONS] = {2, 3, 5, 7, 11, 13, 17};
    for (int i = 0; i < dimensions; i++) {
        double part = 1;
        point[i] = 0;
        for (int rest = index + 1; rest; rest /= primes[i]) {
            part /= primes[i];
            point[i] += part * (rest % primes[i]);
        }
    }
}

static double promise(void *owner, const double *point)
{
    return gaussian_promise(owner, point);
}

struct start {
    double promise, point[GAUSSIAN_DIMENSIONS];
};

/* Keeps the best CLIMBS, the best first. */
static void enter(struct start *starts, const struct start *candidate)
{
    int place = CLIMBS;
    while (place > 0 && candidate->promise > starts[place - 1].promise)
        place--;
    if (place == CLIMBS)
        return;
    memmove(&starts[place + 1], &starts[place], (size_t)(CLIMBS - 1 - place) * sizeof *starts);
    starts[place] = *candidate;
}

static void most_promising(struct gaussian *process, struct box *box, double *point)
{
    struct start starts[CLIMBS], candidate;
    double best = 0;
    for (int i = 0; i < CLIMBS; i++)
        starts[i].promise = -HUGE_VAL;
    for (int i = 0; i < CANDIDATES; i++) {
        spread(i, box->dimensions, candidate.point);
        candidate.promise = gaussian_promise(process, candidate.point);
        enter(starts, &candidate);
    }
    for (int i = 0; i < CLIMBS; i++) {
        double height = maximise(promise, process, box, starts[i].point);
        if (i > 0 && height <= best)
            continue;
        best = height;
        memcpy(point, starts[i].point, (size_t)box->dimensions * sizeof *point);
    }
}

void search_next(struct gaussian *process, int number, double *point)
{
    struct box box = {.dimensions = process->dimensions};
    if (number < process->dimensions + 2 || !process->count) {
        spread(number, process->dimensions, point);
        return;
    }
    for (int i = 0; i < box.dimensions; i++)
        box.high[i] = 1;
    gaussian_fit(process);
    most_promising(process, &box, point);
}
