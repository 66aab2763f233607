/* record_query.h - gathers what all ranks of the running job have recorded, on all its hosts, for `horovodrun
 * --status --timeline`. In the launcher; one thread, the loop's. One question at a time. */
#ifndef HVD_LAUNCH_RECORD_QUERY_H
#define HVD_LAUNCH_RECORD_QUERY_H

#include "collected.h"

#define RECORD_QUERY_SECONDS 3.0 /* hosts that have not answered by then are missing */

/* Gets the records, which are valid during the call. */
typedef void record_query_done_fn(const struct collected *collected, void *argument);

struct record_query {
    struct table *table;
    uv_timer_t deadline;
    uint32_t number; /* of the last question */
    bool *waits;     /* [host_count] by host in the table: its answer is missing */
    int host_count;
    struct history_window window;
    record_query_done_fn *done; /* NULL: nobody has asked */
    void *argument;
};

void record_query_init(struct record_query *record_query, struct table *table);
void record_query_free(struct record_query *record_query); /* after the loop has closed its handles */

/* Calls `done` once this call has returned. Fails while another one asks. */
hvd_code record_query_start(struct record_query *record_query, const struct history_window *window,
                            record_query_done_fn *done, void *argument, hvd_status *status);

/* The client with this argument is not called any longer. */
void record_query_forget(struct record_query *record_query, const void *argument);

/* For a starter: the host has sent all records. */
void record_query_host_done(struct record_query *record_query, uint32_t number, int host);

#endif
