/* collected.h - what the ranks of a job have recorded, gathered for a trace (rank_trace.h): in the launcher
 * from pages of this host and from what agents have sent, in `horovodrun --status` from a launcher, or from
 * the pages of this host. One thread. */
#ifndef HVD_LAUNCH_COLLECTED_H
#define HVD_LAUNCH_COLLECTED_H

#include "job_view.h"
#include "processes.h"
#include "rank_trace.h"

#define COLLECTED_HOST 256

struct collected {
    struct traced_rank *ranks; /* [count] */
    struct history *histories; /* [count] of those that are not kept elsewhere */
    char (*hosts)[COLLECTED_HOST];
    int count, capacity;
};

/* Returns how many requests of each rank a trace of this job may hold. */
int collected_share(int most, int size);

/* Of the processes of a table; what it points to stays the table's. Lacks ranks if memory is out. */
void collected_take(struct collected *collected, const struct table *table,
                    const struct history_window *window);

/* Of the ranks of a view of a job whose pages are on this host. */
hvd_code collected_take_here(struct collected *collected, const struct job_view *job_view,
                             const struct history_window *window, hvd_status *status);

/* Sends it as FRAME_TRACED, one for each rank, followed by FRAME_RECORDS of that rank. */
void collected_send(const struct collected *collected, struct frames *to);

/* Each adds what one of these frames holds. Returns false if it is malformed, or memory is out. */
bool collected_get_rank(struct collected *collected, struct wire_reader *body);
bool collected_get_records(struct collected *collected, struct wire_reader *body);

/* Returns the trace, whose ranks are those of `collected`. */
struct rank_trace collected_trace(struct collected *collected, const char *job);

void collected_free(struct collected *collected); /* zeroed memory is fine */

#endif
