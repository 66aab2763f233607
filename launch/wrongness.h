/* wrongness.h - says that the numbers of a job are wrong: parameters that differ between ranks, or a NaN and
 * where it began. No state; any thread. */
#ifndef HVD_LAUNCH_WRONGNESS_H
#define HVD_LAUNCH_WRONGNESS_H

#include "survey.h"

#include <stdbool.h>
#include <stddef.h>

/* Appends the sentence to the text; returns false if no rank knows of wrong numbers. */
bool wrongness_write(const struct survey *survey, char *text, size_t capacity);

#endif
