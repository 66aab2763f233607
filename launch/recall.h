/* recall.h - gathers what all ranks of the running job have recorded, on all its hosts, for `horovodrun
 * --status
 * --timeline`. In the launcher; one thread, the loop's. One question at a time. */
#ifndef HVD_LAUNCH_RECALL_H
#define HVD_LAUNCH_RECALL_H

#include "collected.h"

#define RECALL_SECONDS 3.0 /* hosts that have not answered by then are missing */

/* Gets the records, which are valid during the call. */
typedef void recall_done_fn(const struct collected *collected, void *argument);

struct recall {
    struct table *table;
    uv_timer_t deadline;
    uint32_t number; /* of the last question */
    bool *waits;     /* by host in the table: it was asked, and has not answered */
    struct history_window window;
    recall_done_fn *done; /* NULL: nobody has asked */
    void *argument;
};

void recall_init(struct recall *recall, struct table *table);
void recall_free(struct recall *recall); /* after the loop has closed its handles */

/* Calls `done` once this call has returned. Fails while another one asks. */
hvd_code recall_start(struct recall *recall, const struct history_window *window, recall_done_fn *done,
                      void *argument, hvd_status *status);

/* The asker with this argument no longer wants to be called. */
void recall_forget(struct recall *recall, const void *argument);

/* For a starter: the host has sent all records. */
void recall_host_done(struct recall *recall, uint32_t number, int host);

#endif
