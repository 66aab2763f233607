/* rank_view.h - what can be said of a rank at one moment, from outside: its page and its process; also as a
 * message to other hosts and processes. host_pages.h makes views. No state; any thread. */
#ifndef HVD_LAUNCH_RANK_VIEW_H
#define HVD_LAUNCH_RANK_VIEW_H

#include "sockets.h"
#include "stack.h"

#include "base/platform_process.h"
#include "base/wire.h"
#include "watch/page_read.h"

/* What the main thread of a rank has done outside of Horovod since hvd_init, in ns. */
struct rank_view_times {
    uint64_t running;  /* it had a processor */
    uint64_t runnable; /* it waited for one */
    uint64_t blocked;  /* it slept, or waited for data, a lock or another process */
};

struct rank_view {
    bool seen; /* false: its host has not answered; only rank and host are known, and the rest is zero */
    struct page_summary page;       /* its times are clock_now's of this process */
    int process;                    /* on its host; 0: it has ended */
    struct platform_process system; /* of that process; from other hosts only its state */
    uint64_t memory_bytes;          /* that the process occupies */
    double seconds;                 /* since the look before this one; 0: there was none */
    uint64_t ended_before;          /* requests that had ended then */
    struct rank_view_times times;   /* zero if it has no process any longer */
    uint64_t engine_ns;             /* for which its progress thread had a processor; 0: unknown */
    struct platform_load load;      /* of its host */
    struct sockets sockets;         /* its connections */
    int64_t late_ns;                /* for which the job has waited for this rank alone: lateness.h */
    uint64_t late_count;            /* how often */
    double late_share;              /* the same as late_ns, of the last minutes, as a share of them */
    struct stack *stack;            /* what its program does; NULL: not known */
};

void rank_view_free(struct rank_view *view); /* zeroed memory is fine */

enum rank_view_state {
    RANK_VIEW_UNSEEN,
    RANK_VIEW_STOPPED, /* by a signal or a debugger */
    RANK_VIEW_ENDED,   /* without leaving the job, or before joining it */
    RANK_VIEW_FAILED,
    RANK_VIEW_LEFT,
    RANK_VIEW_STARTED, /* it has not joined the job yet */
    RANK_VIEW_JOINING, /* it is in hvd_init */
    RANK_VIEW_WAITS,   /* a thread sleeps in Horovod */
    RANK_VIEW_PROGRAM  /* it is in its own program */
};
enum rank_view_state rank_view_state(const struct rank_view *view);

/* Returns the request for which a thread of the rank waits; NULL: none does, or it is not known. */
const struct page_request *rank_view_awaited(const struct rank_view *view);

/* ---- messages ------------------------------------------------------------------------------------------ */

#define RANK_VIEW_REQUESTS 256 /* that are sent; a view with more of them is sent with the oldest */

/* Returns for how long the rank was outside of Horovod since init, in ns; 0: it is not known. */
int64_t rank_view_outside(const struct rank_view *view, int64_t now);

/* Times are sent as ages: each host has a clock of its own. */
void rank_view_put(const struct rank_view *view, int64_t now, struct wire_writer *body);
/* Returns false if it is malformed, or memory is out. The caller frees the view, also after a failure. */
bool rank_view_get(struct rank_view *view, int64_t now, struct wire_reader *body);

#endif
