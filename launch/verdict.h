/* verdict.h - says in one sentence what a job waits for, from the pages of its ranks and the states of their
 * processes. No state; one thread. */
#ifndef HVD_LAUNCH_VERDICT_H
#define HVD_LAUNCH_VERDICT_H

#include "base/platform.h"
#include "watch/page_read.h"

#define VERDICT_TEXT 1024

/* A rank at the moment of a look. */
struct sight {
    struct page_summary page;
    int process;                    /* as seen from here; 0: it has ended */
    struct platform_process system; /* of that process */
    uint64_t ended_before;          /* requests that had ended at the look before this one */
};

enum verdict { VERDICT_HEALTHY = 0, VERDICT_NO_JOB = 1, VERDICT_LATE = 3, VERDICT_BROKEN = 4 };

/* Writes the verdict on the ranks of one job, in the order of their ranks. `seconds`: since the look before.
 * Returns what it is, which is the exit code. */
enum verdict verdict_write(const struct sight *ranks, int count, const struct page_waitings *waitings,
                           int64_t now, double seconds, char *text, size_t capacity);

/* Writes what the rank does. */
void verdict_state(const struct sight *rank, char *text, size_t capacity);

/* Writes ranks as "0-2, 5": those for which `chosen` is `which`. */
void verdict_ranks(const struct sight *ranks, int count, const uint8_t *chosen, int which, char *text,
                   size_t capacity);

#endif
