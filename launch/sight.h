/* sight.h - what can be said of a rank at one moment, from outside: its page and its process; also as a
 * message to other hosts and processes. host_pages.h makes sights. No state; any thread. */
#ifndef HVD_LAUNCH_SIGHT_H
#define HVD_LAUNCH_SIGHT_H

#include "sockets.h"
#include "stack.h"

#include "base/platform.h"
#include "base/wire.h"
#include "watch/page_read.h"

/* What the main thread of a rank has done outside of Horovod since hvd_init, in ns. */
struct sight_times {
    uint64_t running;  /* it had a processor */
    uint64_t runnable; /* it waited for one */
    uint64_t blocked;  /* it slept, or waited for data, a lock or another process */
};

struct sight {
    bool seen; /* false: its host has not answered; only rank and host are known, and the rest is zero */
    struct page_summary page;       /* its times are clock_now's of this process */
    int process;                    /* on its host; 0: it has ended */
    struct platform_process system; /* of that process; from other hosts only its state */
    uint64_t memory_bytes;          /* that the process occupies */
    double seconds;                 /* since the look before this one; 0: there was none */
    uint64_t ended_before;          /* requests that had ended then */
    struct sight_times times;       /* zero if it has no process any longer */
    uint64_t engine_ns;             /* for which its progress thread had a processor; 0: unknown */
    struct platform_load load;      /* of its host */
    struct sockets sockets;         /* its connections */
    int64_t late_ns;                /* for which the job has waited for this rank alone: lateness.h */
    double late_share;              /* the same, of the last minutes */
    struct stack *stack;            /* what its program does; NULL: not known */
};

void sight_free(struct sight *sight); /* zeroed memory is fine */

enum sight_state {
    SIGHT_UNSEEN,
    SIGHT_STOPPED, /* by a signal or a debugger */
    SIGHT_ENDED,   /* without leaving the job, or before joining it */
    SIGHT_FAILED,
    SIGHT_LEFT,
    SIGHT_STARTED, /* it has not joined the job yet */
    SIGHT_JOINING, /* it is in hvd_init */
    SIGHT_WAITS,   /* a thread sleeps in Horovod */
    SIGHT_PROGRAM  /* it is in its own program */
};
enum sight_state sight_state(const struct sight *sight);

/* Returns the request for which a thread of the rank waits; NULL: none does, or it is not known. */
const struct page_request *sight_awaited(const struct sight *sight);

/* ---- messages ------------------------------------------------------------------------------------------ */

#define SIGHT_REQUESTS 256 /* that are sent; a sight with more of them is sent with the oldest */

/* Times are sent as ages: each host has a clock of its own. */
void sight_put(const struct sight *sight, int64_t now, struct wire_writer *body);
/* Returns false if it is malformed, or memory is out. The caller frees the sight, also after a failure. */
bool sight_get(struct sight *sight, int64_t now, struct wire_reader *body);

#endif
