/* look.h - a look at the ranks that this process has started: twice, a moment apart. The launcher of one host
 * and each agent take such looks. One thread, the loop's. */
#ifndef HVD_LAUNCH_LOOK_H
#define HVD_LAUNCH_LOOK_H

#include "host_pages.h"
#include "processes.h"

#include "base/patience.h"

struct look {
    struct table *table;
    /* Gets the views, which it owns, and frees their list; called once for each look. */
    void (*done)(struct look *look, struct rank_view *views, int count);
    uv_timer_t timer;
    struct host_pages *pages; /* of the look that is under way; NULL: none is */
    enum stacks stacks;       /* of which ranks */
    bool requested;           /* the stacks of ranks, */
    struct patience patience; /* and waits for these */
};

void look_init(struct look *look, struct table *table,
               void (*done)(struct look *look, struct rank_view *views, int count));

/* Starts a look, which takes PAGES_PAUSE_MILLISECONDS, and with stacks PAGES_ANSWER_MILLISECONDS more; if one
 * is under way, it has these stacks as well, unless it is too late for that. */
hvd_code look_start(struct look *look, enum stacks stacks, hvd_status *status);

void look_free(struct look *look); /* after the loop has closed its handles */

#endif
