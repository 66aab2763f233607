/* page_waitings.h - finds out from the pages of several ranks which requests wait for which ranks. No state;
 * any thread. */
#ifndef HVD_WATCH_PAGE_WAITINGS_H
#define HVD_WATCH_PAGE_WAITINGS_H

#include "watch/page_read.h"

enum page_part {
    PART_NONE,    /* not a member of the process set */
    PART_WAITS,   /* it has submitted the request */
    PART_MISSING, /* it has not */
    PART_UNKNOWN  /* a member whose page does not show all of its requests, or not with their names */
};

/* A request that some ranks have submitted, and that is not decided. */
struct page_waiting {
    const struct page_request *request; /* of the rank that has waited longest */
    int64_t since;
    int waits, missing; /* ranks of these pages */
    int hidden;         /* members of the process set that are unknown, or have no page among these */
    uint8_t *parts;     /* [count] enum page_part */
};

struct page_waitings {
    struct page_waiting *list; /* the one that has waited longest first */
    int count;
    uint8_t *parts;
};

/* Compares the pages of the ranks of one epoch of one job. The result points into the summaries. */
hvd_code page_waitings_find(const struct page_summary *pages, int count, struct page_waitings *waitings,
                            hvd_status *status);
void page_waitings_free(struct page_waitings *waitings);

#endif
