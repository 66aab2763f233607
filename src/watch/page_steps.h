/* page_steps.h - reads from a page how far the training of its rank has come. No state; any thread. Numbers
 * and times of the page may be wrong, see page_read.h. */
#ifndef HVD_WATCH_PAGE_STEPS_H
#define HVD_WATCH_PAGE_STEPS_H

#include "watch/page.h"

#include <stdbool.h>
#include <stdint.h>

/* Steps are those that were reported (hvd_step). If none was, a step is a use of the name that was used most
 * often, if it was used again; its number is its count. */
struct page_steps {
    uint64_t count, samples;
    int64_t number; /* of the last one */
    int64_t last;   /* when it was reported, clock_now's; 0: there is none */
    int64_t median; /* ns from one of the last PAGE_STEPS to the next; 0: there are fewer than two */
    bool reported;
};

void page_steps_read(const struct page *page, int64_t now, struct page_steps *steps);

#endif
