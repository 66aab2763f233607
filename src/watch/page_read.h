/* page_read.h - reads the page of a rank in another process. No state; any thread.
 *
 * A page may be damaged, or be made by somebody who wants to deceive. So a reader copies it first, relies on
 * no number or text in it, and replaces what can't be printed. Times that make no sense count as now. */
#ifndef HVD_WATCH_PAGE_READ_H
#define HVD_WATCH_PAGE_READ_H

#include "watch/page.h"
#include "watch/page_steps.h"

#define PAGE_TITLE (PAGE_NAME_TEXT + 40)

/* One request. */
struct page_request {
    int process_set;
    char title[PAGE_TITLE]; /* as users know it: "grouped_allreduce.grad" */
    hvd_operation operation;
    uint64_t number, bytes, batch;
    int64_t submitted, decided, ended; /* clock_now's; 0: not yet */
    hvd_code outcome;
    bool held;
    bool nameless; /* another name has taken the place of its name: the title ends with "?" */
};

struct page_thread {
    int id;
    uint64_t record; /* number of the request that it waits for; 0: unknown */
    int64_t since;
};

struct page_membership {
    int id, size; /* size 0: not, or no longer */
};

/* For how long the rank has waited for one reporter alone. */
struct page_reporter {
    int rank;               /* of the job: this rank itself, or a child in the tree with its subtree */
    int64_t total, longest; /* ns, the present wait included */
    uint64_t count;         /* waits */
    bool waits;             /* it does so now */
    double share;           /* of the last minutes */
};

/* Of all process sets in the page. */
struct page_counts {
    uint64_t submitted, succeeded, failed, batches, bytes, wait_ns, nonfinite;
};
void page_counts_add(struct page_counts *to, const struct page_counts *counts);

/* What a page says. */
struct page_summary {
    struct page_identity identity;
    enum page_state state;
    char cause[PAGE_CAUSE_TEXT];
    int child;
    uint64_t child_start;
    int64_t progress;
    uint64_t dropped;
    struct page_thread threads[PAGE_CALLERS]; /* that sleep in Horovod */
    int thread_count;
    struct page_membership sets[PAGE_SETS];
    int set_count;
    struct page_counts operations[OPERATION_NUMBERS];
    struct page_counts all; /* operations */
    struct page_steps steps;
    struct page_request *requests; /* in flight, in the order of their submission */
    int64_t nan_step;              /* of the first NaN that began on this rank; 0: unknown */
    char nan[PAGE_NAN_TEXT];       /* the tensor that had it, as "allreduce.fc1.bias"; "": there was none */
    int progress_thread;           /* its id; 0: unknown */
    uint64_t parameter_checks, divergences;
    char divergence[PAGE_DIVERGENCE_TEXT]; /* which parameters differed in the latest check; "": none */
    int request_count;
    struct page_reporter *reporters; /* in process set 0 */
    int reporter_count;
    uint64_t negotiations[PAGE_NEGOTIATIONS];
    int64_t negotiation_total;
    struct page_request last; /* the request that ended last; number 0: none has */
};

/* Copies for page_read. */
struct page_copies;
struct page_copies *page_copies_create(void); /* NULL: out of memory */
void page_copies_free(struct page_copies *copies);

/* Reads a page that may change meanwhile; the caller frees the summary. `now`: clock_now's. HVD_REFUSED: it
 * is none. HVD_UNSUPPORTED: it is of another version. */
hvd_code page_read(int fd, struct page_copies *copies, int64_t now, struct page_summary *summary,
                   hvd_status *status);

/* Copies a page that may change meanwhile: names and records that changed have the number 0. The copy is
 * valid until the next one. */
hvd_code page_copy(int fd, struct page_copies *copies, const struct page **copied, hvd_status *status);

/* Reads a record of a page that does not change. */
void page_request_read(const struct page *page, const struct page_record *record, int64_t now,
                       struct page_request *request);

/* As page_read, of a copy that does not change. */
hvd_code page_summarize(const struct page *page, int64_t now, struct page_summary *summary,
                        hvd_status *status);

/* Reads only what these need: some 5 KiB. */
struct page_glance {
    enum page_state state;
    uint64_t ended;  /* requests that have succeeded or failed */
    int64_t stalled; /* since when ranks wait in the stall that was reported last; 0: none was */
};
hvd_code page_glance(int fd, struct page_glance *glance, hvd_status *status);

void page_summary_free(struct page_summary *summary); /* zeroed memory is fine */

#endif
