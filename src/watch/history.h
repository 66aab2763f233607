/* history.h - the requests of one rank that its page still shows, in the order of their submission, and its
 * steps of training: read from the page, and passed from one process to another. No state; any thread.
 *
 * As page_read.h, it relies on nothing in a page, nor in bytes that arrive: titles are printable, times are
 * in order, and no list is longer than a page. */
#ifndef HVD_WATCH_HISTORY_H
#define HVD_WATCH_HISTORY_H

#include "watch/page_read.h"

#include "base/wire.h"

struct history_request {
    int64_t submitted, decided, ended; /* clock_now's, on the host of the rank; 0: not yet */
    uint64_t number, bytes, batch;
    int32_t process_set;
    uint32_t title; /* its index */
    hvd_code outcome;
    bool held;
};

/* The end of a step of training. */
struct history_step {
    uint64_t count;   /* steps so far, with this one */
    int64_t number;   /* by the program's own count */
    int64_t reported; /* clock_now's, on the host of the rank */
    uint64_t samples;
};

struct history {
    struct history_request *list; /* [count] */
    char (*titles)[PAGE_TITLE];   /* [title_count]: "grouped_allreduce.grad" */
    int count, title_count, title_room;
    struct history_step steps[PAGE_STEPS]; /* [step_count] in their order */
    int step_count;
};

/* Which requests are wanted. Those in flight always are. */
struct history_window {
    int64_t span; /* those that ended at most this long before the newest decision of the rank; 0: all */
    int steps;    /* those since the end of the step before the last ones; if none was reported, since the
                     most frequent name was submitted this often; 0: all */
    int most;     /* the newest of them, at most this many */
};

/* Reads a page that may change meanwhile, as page_read does; the caller frees the history, also after a
 * failure. `now`: clock_now's. */
hvd_code history_read(int fd, struct page_copies *copies, const struct history_window *window, int64_t now,
                      struct history *history, hvd_status *status);

/* The same of a copy that does not change. */
hvd_code history_of_page(const struct page *page, const struct history_window *window, int64_t now,
                         struct history *history, hvd_status *status);

/* Appends requests from `first` on to a message, as many as `limit` bytes hold, but at least one if there is
 * one; steps are in the first message. Returns the first request that is left. */
int history_put(const struct history *history, int first, size_t limit, struct wire_writer *body);

/* Appends what the rest of a message holds. Returns false if it is malformed, or memory is out. */
bool history_get(struct history *history, struct wire_reader *body);

void history_free(struct history *history); /* zeroed memory is fine */

#endif
