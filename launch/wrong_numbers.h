/* wrong_numbers.h - says that the numbers of a job are wrong: parameters that differ between ranks, or a NaN
 * and where it began. No state; any thread. */
#ifndef HVD_LAUNCH_WRONG_NUMBERS_H
#define HVD_LAUNCH_WRONG_NUMBERS_H

#include "job_view.h"

#include <stdbool.h>
#include <stddef.h>

/* Appends the sentence to the text; returns false if no rank knows of wrong numbers. */
bool wrong_numbers_write(const struct job_view *job_view, char *text, size_t capacity);

#endif
