/* look.h - a look at the ranks that this process has started: twice, a moment apart. The launcher of one host
 * and each agent take such looks. One thread, the loop's. */
#ifndef HVD_LAUNCH_LOOK_H
#define HVD_LAUNCH_LOOK_H

#include "processes.h"
#include "sight.h"

struct look {
    struct table *table;
    /* Gets the sights, which it owns, and frees their list; called once for each look_start. */
    void (*done)(struct look *look, struct sight *sights, int count);
    uv_timer_t timer;
    struct host_pages *pages; /* of the look that is under way; NULL: none is */
};

void look_init(struct look *look, struct table *table,
               void (*done)(struct look *look, struct sight *sights, int count));

/* Starts a look, which takes PAGES_PAUSE_MILLISECONDS, unless one is under way. */
hvd_code look_start(struct look *look, hvd_status *status);

void look_free(struct look *look); /* after the loop has closed its handles */

#endif
