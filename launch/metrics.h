/* metrics.h - writes a survey in the text format 0.0.4 of Prometheus, which every scraper reads. Pure. */
#ifndef HVD_LAUNCH_METRICS_H
#define HVD_LAUNCH_METRICS_H

#include "survey.h"

#include <stdio.h>

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* If the job has more ranks than `limit`, the numbers of the ranks of
 * a host are added up, so that a large job does not make more time series than a database wants. */
void metrics_write(FILE *file, const struct survey *survey, int limit);

#endif
